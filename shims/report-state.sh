#!/bin/sh
# report-state.sh: the old name of prun-report. It becomes the program (exec): same
# process, and no open script that stands in the way of replacing this file.
tool=prun-report self=$0
case $self in */*) ;; *) self=./$self ;; esac
while [ -L "$self" ]; do
	link=$(readlink "$self") || break
	case $link in /*) self=$link ;; *) self=${self%/*}/$link ;; esac
done
here=${self%/*}
# ../../bin is where the binaries are seen from PREFIX/libexec/prun-shims.
for dir in "${PRUN_BIN_DIR:-$here/../bin}" "$here/../bin" "$here/../../bin"; do
	if [ -f "$dir/$tool" ] && [ -x "$dir/$tool" ]; then exec "$dir/$tool" "$@"; fi
done
if command -v "$tool" >/dev/null 2>&1; then exec "$tool" "$@"; fi
if [ -f "$here/$tool" ] && [ -x "$here/$tool" ]; then exec "$here/$tool" "$@"; fi
echo "report-state: $tool not found; install the prun suite (make install) or set PRUN_BIN_DIR" >&2
exit 127
