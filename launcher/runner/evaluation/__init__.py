"""What is looked at while a run trains: numbers over an own data set, and samples."""
