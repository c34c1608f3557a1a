"""A library over HTTP: a JSON API for programs and a web page for people.

    polyglance serve --library my.polyglance

The server listens on this machine only unless an access token is set
(`polyglance.serve.auth`), and serves only files that are in the library
(`polyglance.serve.catalog`).
"""
