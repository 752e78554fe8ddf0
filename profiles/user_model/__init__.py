"""The user's file: loading, checking and stepping it. This folder is shipped to the nodes."""
