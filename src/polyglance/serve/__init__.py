"""A library over HTTP: an interface for programs, and a page for people.

    polyglance serve --library my.polyglance

It listens on this machine only, unless a token is given, and gives out nothing but what is
in the library (`polyglance.serve.doorkeeper`, `polyglance.serve.shelf`).
"""
