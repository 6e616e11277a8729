"""The figures: functions that turn data into drawings with pixel positions."""
