"""The gradient of a linear layer's weights and bias in a fixed order."""
