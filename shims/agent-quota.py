#!/usr/bin/env python3
"""agent-quota.py: the old name of agent-quota."""
import os
import shutil
import signal
import subprocess
import sys

TOOL = "agent-quota.exe" if os.name == "nt" else "agent-quota"


def find():
    here = os.path.dirname(os.path.realpath(__file__))
    # ../../bin is where the binaries are seen from PREFIX/libexec/prun-shims.
    near = [os.environ.get("PRUN_BIN_DIR", "").strip(), os.path.join(here, "..", "bin"), os.path.join(here, "..", "..", "bin")]
    for path in [os.path.join(d, TOOL) for d in near if d] + [shutil.which(TOOL), os.path.join(here, TOOL)]:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def main():
    path = find()
    if path is None:
        sys.stderr.write("agent-quota: agent-quota not found; install the prun suite (make install) or set PRUN_BIN_DIR\n")
        return 127
    argv = [path, "--dialect=agent-quota.py"] + sys.argv[1:]
    if os.name != "nt":
        # The interpreter ignores these two; what it executes would inherit that.
        for name in ("SIGPIPE", "SIGXFSZ"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.execv(path, argv)
    # os.execv on Windows starts a new process and loses its exit code.
    child = subprocess.Popen(argv)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            pass  # the child got it too


sys.exit(main())
