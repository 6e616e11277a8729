"""The figures: functions from data to Vega-Lite specifications."""
