"""The closed-form continuous-time cell behind its two products, with its backward."""
