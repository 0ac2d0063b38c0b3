# SPDX-License-Identifier: Apache-2.0
"""openapi.yaml tells the truth: its paths and methods are the daemon's, and real answers fit its schemas."""

import re
import sys
import unittest

from harness import TOP, DaemonCase, until
from schema import Validator

try:
    import yaml  # python3-yaml
except ImportError:
    yaml = None

TEXT = (TOP / "api/openapi.yaml").read_text()


def paths():
    """{path: {methods}}, by the layout of the file alone."""
    found, path = {}, None
    for line in TEXT.split("\ncomponents:")[0].splitlines():
        m = re.fullmatch(r"  (/\S*):", line)
        if m:
            path = found.setdefault(m.group(1), set())
        m = re.fullmatch(r"    (get|put|post|delete|patch|head|options):", line)
        if m:
            path.add(m.group(1).upper())
    return found


class Paths(DaemonCase):
    def test_the_document_is_the_one_in_the_tree(self):
        self.assertEqual(self.d.request("GET", "/openapi.yaml").text.decode(), TEXT)

    def test_same_paths_and_methods(self):
        self.assertGreaterEqual(len(paths()), 20)
        for path, methods in paths().items():
            r = self.d.request("BREW", path.replace("{g}", "x").replace("{t}", "t1"))
            self.problem(r, 405, "method_not_allowed")
            self.assertEqual(set(r.headers["Allow"].split(", ")) - {"HEAD"}, methods, path)

    def test_same_paths_in_the_code(self):
        code = (TOP / "api/router.c").read_text()
        code = code.replace('FUNCTIONS,', '"/v1/guests/{g}/functions",')
        routes = re.findall(r'\{ "([A-Z]+)",\s*"([^"]+)",', code)
        self.assertEqual(sorted(routes), sorted((m, p) for p, ms in paths().items() for m in ms))


@unittest.skipUnless(yaml, "PyYAML (python3-yaml) is not installed: answers are not compared with schemas")
class Answers(DaemonCase):
    args = ("--heartbeat", "0.05")

    def setUp(self):
        super().setUp()
        self.doc = yaml.safe_load(TEXT)
        self.validator = Validator(self.doc)

    def operation(self, method, path):
        for pattern, item in self.doc["paths"].items():
            if re.fullmatch(re.sub(r"\{\w\}", "[^/]+", pattern), path.split("?")[0]):
                return item[method.lower()]
        raise AssertionError(f"{path} is not described")

    def ask(self, method, path, body=None, status=200):
        """A request whose answer must fit what is written about it."""
        r = self.d.request(method, path, body)
        self.assertEqual(r.status, status, r.text)
        op = self.operation(method, path)
        response = op["responses"].get(str(status)) or op["responses"][f"{status // 100}XX"]
        if "$ref" in response:
            response = self.validator.resolve(response["$ref"])
        schema = response["content"][r.type]["schema"]
        if r.body is not None:
            self.validator.check(schema, r.body)
        if body is not None:
            given = op["requestBody"]["content"]["application/json"]["schema"]
            self.assertEqual(self.validator.matches(given, body), status != 400, body)
        return r.body

    def test_all_operations(self):
        for path in ("/healthz", "/version", "/openapi.yaml", "/metrics", "/v1/guests", "/v1/traces",
                     "/v1/events"):
            self.ask("GET", path)
        self.ask("POST", "/v1/guests", {"target": "qemu:/fake-lossy", "name": "g"}, 201)
        self.ask("POST", "/v1/guests", {"target": "qemu:/fake-dies"}, 201)
        self.ask("POST", "/v1/guests", {"target": "qemu:/fake-console"}, 201)
        for path in ("/v1/guests", "/v1/guests/g", "/v1/guests/fake-console/console",
                     "/v1/guests/g/functions?limit=3", "/v1/guests/g/functions",
                     "/v1/guests/g/modules", "/v1/guests/g/traces", "/v1/guests/g/symbols?limit=3",
                     "/v1/guests/g/symbols", "/v1/guests/g/symbols?address=0xffffffff81000005"):
            self.ask("GET", path)
        t = self.ask("POST", "/v1/guests/g/traces",
                     {"tracer": "function", "filter": ["vfs_*"], "notrace": ["x"],
                      "pids": [1], "mode": "overwrite", "buffer_records": 2048}, 201)["id"]
        f = self.ask("POST", "/v1/guests/fake-dies/traces", {"tracer": "function_graph"}, 201)["id"]
        until("records and a loss", lambda: self.d.get(f"/v1/traces/{t}")["lost"])
        until("the other fails", lambda: self.d.get(f"/v1/traces/{f}")["state"] == "failed")
        for path in ("/v1/traces", f"/v1/traces/{t}", f"/v1/traces/{f}", f"/v1/traces/{t}/records",
                     f"/v1/traces/{f}/records", f"/v1/traces/{t}/profile",
                     f"/v1/traces/{f}/profile?sort=self", "/v1/guests/g", "/v1/guests/g/traces"):
            self.ask("GET", path)
        self.ask("POST", f"/v1/traces/{t}/markers", {"text": "here"}, 201)
        self.ask("POST", f"/v1/traces/{t}/markers", {"text": ""}, 400)
        self.ask("GET", f"/v1/traces/{t}/records")
        self.ask("POST", f"/v1/traces/{t}/snapshot", status=201)
        self.ask("GET", "/v1/events")
        self.ask("POST", f"/v1/traces/{t}/stop")
        self.ask("DELETE", f"/v1/traces/{t}")
        self.ask("DELETE", f"/v1/traces/{f}")
        self.ask("DELETE", "/v1/guests/g?force=true")

    def test_examples(self):
        for path, item in self.doc["paths"].items():
            for op in item.values():
                if not isinstance(op, dict) or "requestBody" not in op:
                    continue
                content = op["requestBody"]["content"].get("application/json")
                if not content:  # bytes
                    continue
                self.validator.check(content["schema"], content["example"])
                if "{t}" in path:
                    name = path.rsplit("/", 1)[1].strip("{}")
                    self.d.attach(f"{name}/fake", name)
                    method = next(m for m in item if item[m] is op)
                    self.ask(method.upper(), path.replace("{t}", self.d.trace(name)), content["example"],
                             201 if method == "post" else 200)
                elif path == "/v1/guests":  # no such guest here, but it must not be the body's fault
                    self.ask("POST", path, content["example"], 404)
                else:
                    self.d.attach()
                    self.ask("POST", path.replace("{g}", "g"), content["example"], 201)

    def test_examples_of_parameters(self):
        n = 0
        for path, item in self.doc["paths"].items():
            for method, op in item.items():
                for p in op.get("parameters", []) if isinstance(op, dict) else []:
                    if "example" not in p:
                        continue
                    n += 1
                    self.d.attach(f"e{n}/fake", f"e{n}")
                    t = self.d.trace(f"e{n}", tracer="function_graph")
                    self.d.good("POST", f"/v1/traces/{t}/stop")
                    real = path.replace("{g}", f"e{n}").replace("{t}", t)
                    r = self.d.request(method.upper(), f"{real}?{p['name']}={p['example']}",
                                       headers={"Accept": "text/plain, */*"})
                    self.assertEqual(r.status, 200, r.text)
        self.assertGreater(n, 0)

    def examples(self, node, at=()):
        """(place, example) of all that the document has."""
        for key, value in node.items() if isinstance(node, dict) else enumerate(node) \
                if isinstance(node, list) else ():
            if key in ("example", "examples") and at[-1:] != ("properties",):
                yield at, value
            yield from self.examples(value, (*at, key))

    def test_examples_that_are_left(self):
        """Every example is executed: those of bodies and parameters above, the others here."""
        done = 0
        self.d.attach("fake", "web1")
        t = self.d.trace("web1", tracer="function_graph")
        for at, example in self.examples(self.doc):
            if at[2:] == ("parameters", 0) and at[0] == "paths":  # of the path itself
                name = self.doc["paths"][at[1]]["parameters"][0]["name"]
                self.assertEqual(self.d.request("GET", at[1].replace(f"{{{name}}}", example)).status, 200)
            elif at[-2:] == ("headers", "Content-Disposition"):
                r = self.d.request("GET", at[1].replace("{t}", t) + "?format=chrome")
                self.assertEqual(r.headers["Content-Disposition"], example)
            else:
                self.assertTrue(at[3] == "requestBody" or at[3] == "parameters", at)
                continue
            done += 1
        self.assertEqual(done, 2)

    def test_problems(self):
        self.ask("GET", "/v1/guests/none", status=404)
        self.ask("GET", "/v1/guests?x=1", status=400)
        self.ask("POST", "/v1/guests", {"target": 1}, 400)
        self.ask("PATCH", "/v1/traces/t9", {"tracer": "function"}, 404)
        self.ask("POST", "/v1/guests", {"target": "a", "nme": "b"}, 400)
        self.ask("POST", "/v1/guests", {"target": "qemu:/err/guest.text_changed"}, 409)
        self.ask("POST", "/v1/guests", {"target": "qemu:/err/journal.failed"}, 500)

    def test_bodies_are_judged_alike(self):
        """What the schema refuses the daemon refuses, and the other way round."""
        self.d.attach()
        for body in ({}, {"tracer": "x"}, {"tracer": "function", "filter": ["x" * 511]},
                     {"tracer": "function", "filter": ["x" * 512]}, {"tracer": "function", "filter": [""]},
                     {"tracer": "function", "pids": [0]}, {"tracer": "function", "pids": [4194304]},
                     {"tracer": "function", "pids": [4194305]}, {"tracer": "function", "pids": [True]},
                     {"tracer": "function", "mode": "discard"}, {"tracer": "function", "mode": "keep"},
                     {"tracer": "function_graph"}, {"tracer": "function_graphs"},
                     {"tracer": "function", "buffer_records": 1023},
                     {"tracer": "function", "buffer_records": 67108865},
                     {"tracer": "function", "notrace": None}, {"tracer": "function", "x": 1},
                     *({"tracer": "function_graph", **x} for x in (
                         {"graph": ["a"]}, {"graph": "a"}, {"graph": [""]}, {"graph_notrace": ["x" * 511]},
                         {"graph_notrace": ["x" * 512]}, {"max_graph_depth": 0}, {"max_graph_depth": 65535},
                         {"max_graph_depth": 65536}, {"max_graph_depth": -1}, {"max_graph_depth": "1"},
                         {"threshold_ns": 0}, {"threshold_ns": 3600 * 10**9}, {"threshold_ns": -1},
                         {"threshold_ns": 3600 * 10**9 + 1}, {"threshold_ns": True}, {"irqs": False},
                         {"irqs": 1}, {"sleep_time": True}, {"sleep_time": None}, {"retval": True},
                         {"retval": "yes"}, {"args": True}, {"args": {}}, {"switches": False},
                         {"switches": 2}, {"stack": ["a"]}, {"stack": [""]}, {"stack": "a"},
                         {"stack_depth": 64}, {"stack_depth": 65}, {"stack_depth": 0}))):
            schema = self.doc["components"]["schemas"]["TraceStart"]
            r = self.d.request("POST", "/v1/guests/g/traces", body)
            self.assertEqual(r.status != 400, self.validator.matches(schema, body), body)
            if r.status == 201:
                self.d.good("DELETE", f"/v1/traces/{r.body['id']}")

    def test_changes_are_judged_alike(self):
        self.d.attach()
        t = self.d.trace()
        for body in ({}, {"tracer": "function"}, {"tracer": "function_graph"}, {"tracer": "x"},
                     {"tracer": None}, {"tracer": "function", "filter": []}, {"tracing_on": False},
                     {"tracing_on": 1}, {"tracing_on": True}, {"filter": ["vfs_*"]}, {"filter": "x"},
                     {"notrace": [""]}, {"notrace": ["tcp_*"]}, {"pids": [0]}, {"pids": [1]}, {"pids": []},
                     {"mode": "discard"}):
            schema = self.doc["components"]["schemas"]["TraceChange"]
            r = self.d.request("PATCH", f"/v1/traces/{t}", body)
            self.assertEqual(r.status, 200 if self.validator.matches(schema, body) else 400, body)

    def test_stream(self):
        schema = self.doc["components"]["schemas"]["StreamItem"]
        kinds = set()
        for kind, more in (("fake-lossy", {}), ("fake-quiet", {}), ("fake", {"tracer": "function_graph"}),
                           ("fake", {"tracer": "function_graph", "args": True, "retval": True}),
                           ("fake", {"args": True})):
            self.d.attach(kind, kind)
            t = self.d.trace(kind, **more)
            with self.d.stream(t) as s:
                for n, item in enumerate(s):
                    self.validator.check(schema, item)
                    kinds.add(item["type"])
                    if n == (2 if kind == "fake-quiet" else 200):
                        self.d.good("POST", f"/v1/traces/{t}/stop")
            self.d.good("DELETE", f"/v1/guests/{kind}")
        self.assertEqual(kinds, {"function", "graph_entry", "graph_return", "graph_never", "lost",
                                 "heartbeat", "end"})

    def test_this_validator_finds_faults(self):
        check = self.validator.matches
        schemas = self.doc["components"]["schemas"]
        good = {"type": "heartbeat", "seq": 1}
        self.assertTrue(check(schemas["Heartbeat"], good))
        for bad in ({"type": "heartbeat"}, {"type": "heart", "seq": 1}, {"type": "heartbeat", "seq": "1"},
                    {"type": "heartbeat", "seq": 1, "more": 1}, {"type": "heartbeat", "seq": True}):
            self.assertFalse(check(schemas["Heartbeat"], bad), bad)
        self.assertFalse(check(schemas["Address"], "0xG"))

    def test_records_with_values_and_switches(self):
        check = self.validator.matches
        item = self.doc["components"]["schemas"]["StreamItem"]
        task = {"seq": 1, "ts_ns": 2, "cpu": 0, "pid": 3, "tgid": None, "comm": "sh"}
        where = {"function": "f", "module": None, "ip": "0x1", "parent": None, "context": ".....", "depth": 0}
        value = {"type": "int", "value": "0xfffffffe", "text": "-2 (ENOENT)"}
        argument = {"name": "file", "type": "file *", "value": "0xffff888100bd2a00",
                    "text": "0xffff888100bd2a00"}
        entry = {**task, **where, "type": "graph_entry"}
        self.assertTrue(check(item, {**entry, "args": [
            argument, {"name": None, "type": None, "value": "0x1:0x2", "text": "0x1:0x2"},
            {"name": "x", "type": "big", "value": None, "text": "..."}]}))
        self.assertTrue(check(item, {**task, **where, "type": "graph_return", "duration_ns": 5,
                                     "retval": value}))
        self.assertTrue(check(item, {**task, "type": "switch", "prev_pid": 4, "context": "d..2."}))
        for bad in ({**entry, "args": value}, {**entry, "args": [value]}, {**entry, "retval": 2},
                    {**entry, "retval": {"text": "2"}}, {**entry, "retval": {**value, "value": 2}},
                    {**task, "type": "switch"},
                    {**task, "type": "switch", "context": ".....", "prev_pid": "4"},
                    {**task, "type": "graph_entry", "prev_pid": 4}):
            self.assertFalse(check(item, bad), bad)


if __name__ == "__main__":
    if not yaml:
        print("note: without PyYAML only paths are compared", file=sys.stderr)
    unittest.main()
