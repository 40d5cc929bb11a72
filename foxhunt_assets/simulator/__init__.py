"""The one environment: train, evaluation, surrogate and replay step through the same function.

Prices are int32 ticks, money int64 cents, quantities int lots: exact on any device.
"""
