"""Values of arrival and moments of a rollout window."""
