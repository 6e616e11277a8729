"""The figures: functions from data to drawings, placed by the pixel."""
