"""The passes: functions from Graph to Graph."""
