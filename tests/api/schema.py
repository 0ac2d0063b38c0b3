# SPDX-License-Identifier: Apache-2.0
"""As much of JSON Schema (2020-12) as openapi.yaml uses. An unknown keyword is an error, not a pass."""

import re

IGNORED = {"description", "summary", "example", "default", "format"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int}


class Invalid(AssertionError):
    pass


class Validator:
    def __init__(self, document):
        self.document = document

    def resolve(self, ref):
        node = self.document
        for part in ref.removeprefix("#/").split("/"):
            node = node[part]
        return node

    def check(self, schema, value, where="$"):
        for key, arg in schema.items():
            if key in IGNORED:
                continue
            try:
                keyword = getattr(self, "kw_" + key.lstrip("$"))
            except AttributeError:
                raise Invalid(f"{where}: keyword {key} is not known to this validator") from None
            keyword(arg, value, where, schema)

    def matches(self, schema, value):
        try:
            self.check(schema, value)
        except Invalid:
            return False
        return True

    def need(self, good, where, words):
        if not good:
            raise Invalid(f"{where}: {words}")

    def kw_ref(self, arg, value, where, _):
        self.check(self.resolve(arg), value, where)

    def kw_type(self, arg, value, where, _):
        names = arg if isinstance(arg, list) else [arg]
        good = any(isinstance(value, TYPES[n]) for n in names)
        if isinstance(value, bool):  # which Python takes for an integer
            good = "boolean" in names
        self.need(good, where, f"{value!r} is no {arg}")

    def kw_required(self, arg, value, where, _):
        for name in arg if isinstance(value, dict) else ():
            self.need(name in value, where, f"{name} is missing")

    def kw_properties(self, arg, value, where, _):
        for name, item in value.items() if isinstance(value, dict) else ():
            # our own answers have no members that are not described
            self.need(name in arg, where, f"{name} is not described")
            self.check(arg[name], item, f"{where}.{name}")

    def kw_additionalProperties(self, arg, value, where, schema):  # noqa: N802
        self.need(arg is False and set(value) <= set(schema["properties"]), where, "other members")

    def kw_items(self, arg, value, where, _):
        for i, item in enumerate(value if isinstance(value, list) else ()):
            self.check(arg, item, f"{where}[{i}]")

    def kw_enum(self, arg, value, where, _):
        self.need(value in arg, where, f"{value!r} is none of {arg}")

    def kw_const(self, arg, value, where, _):
        self.need(value == arg, where, f"{value!r} is not {arg!r}")

    def kw_pattern(self, arg, value, where, _):
        self.need(re.search(arg, value), where, f"{value!r} does not match {arg}")

    def kw_minimum(self, arg, value, where, _):
        self.need(value >= arg, where, f"{value} is below {arg}")

    def kw_maximum(self, arg, value, where, _):
        self.need(value <= arg, where, f"{value} is above {arg}")

    def kw_minLength(self, arg, value, where, _):  # noqa: N802
        self.need(len(value) >= arg, where, "too short")

    def kw_maxLength(self, arg, value, where, _):  # noqa: N802
        self.need(len(value) <= arg, where, "too long")

    def kw_maxItems(self, arg, value, where, _):  # noqa: N802
        self.need(len(value) <= arg, where, "too many items")

    def kw_minProperties(self, arg, value, where, _):  # noqa: N802
        self.need(len(value) >= arg, where, "too few members")

    def kw_oneOf(self, arg, value, where, _):  # noqa: N802
        n = sum(self.matches(s, value) for s in arg)
        if n != 1:
            # say why the first did not match, which is the likely one
            self.check(arg[0], value, where)
            raise Invalid(f"{where}: {n} of the alternatives match")
