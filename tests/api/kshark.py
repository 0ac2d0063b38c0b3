# SPDX-License-Identifier: Apache-2.0
"""What KernelShark sees of a trace.dat, a line of JSON an event, by the library that it reads files with.

kshark.py FILE. Exit status 77: there is no libkshark. The types are those of libkshark.h of KernelShark 2.2.
"""

import ctypes
import json
import sys


class Entry(ctypes.Structure):
    pass


ENTRY = ctypes.POINTER(Entry)
Entry._fields_ = [("next", ENTRY), ("visible", ctypes.c_uint16), ("stream_id", ctypes.c_int16),
                  ("event_id", ctypes.c_int16), ("cpu", ctypes.c_int16), ("pid", ctypes.c_int32),
                  ("offset", ctypes.c_int64), ("ts", ctypes.c_int64)]
ROWS = ctypes.POINTER(ENTRY)


def function(library, name, result, *args):
    f = getattr(library, name)
    f.restype, f.argtypes = result, args
    return f


def main(path):
    try:
        library = ctypes.CDLL("libkshark.so.2")
    except OSError as e:
        print(e, file=sys.stderr)
        return 77
    context, rows = ctypes.c_void_p(), ROWS()
    assert function(library, "kshark_instance", ctypes.c_bool,
                    ctypes.POINTER(ctypes.c_void_p))(ctypes.byref(context))
    stream = function(library, "kshark_open", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
        context, path.encode())
    assert stream >= 0, f"KernelShark does not open it: {stream}"
    n = function(library, "kshark_load_entries", ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int,
                 ctypes.POINTER(ROWS))(context, stream, ctypes.byref(rows))
    assert n >= 0, f"KernelShark does not load it: {n}"
    event, task, info = (function(library, f"kshark_get_{what}", ctypes.c_char_p, ENTRY)
                         for what in ("event_name", "task", "info"))
    for i in range(n):
        e = rows[i]
        print(json.dumps({"ts": e.contents.ts, "cpu": e.contents.cpu, "pid": e.contents.pid,
                          **{name: (f(e) or b"").decode(errors="replace")
                             for name, f in (("event", event), ("task", task), ("info", info))}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
