"""A tree of logs and runs as one page: `find`, `make_board`, `render_board`."""

from smoothmix.report.leaderboard.board import Board, Entry, make_board
from smoothmix.report.leaderboard.files import Found, Unread, find
from smoothmix.report.leaderboard.page import render_board

__all__ = ["Board", "Entry", "Found", "Unread", "find", "make_board", "render_board"]
