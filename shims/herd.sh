#!/bin/sh
# herd.sh: the old name of herd. A kit's profiles, in config beside the folder of this file, are used as before. It becomes
# the program (exec): same process, and no open script that stands in the way of replacing this file.
tool=herd self=$0
case $self in */*) ;; *) self=./$self ;; esac
while [ -L "$self" ]; do
	link=$(readlink "$self") || break
	case $link in /*) self=$link ;; *) self=${self%/*}/$link ;; esac
done
here=${self%/*}
if [ -z "$DELEGATE_MODELS_FILE" ] && [ -f "$here/../config/models.env" ]; then
	DELEGATE_MODELS_FILE=$here/../config/models.env
	export DELEGATE_MODELS_FILE
fi
# ../../bin is where the binaries are seen from PREFIX/libexec/prun-shims.
for dir in "${PRUN_BIN_DIR:-$here/../bin}" "$here/../bin" "$here/../../bin"; do
	if [ -f "$dir/$tool" ] && [ -x "$dir/$tool" ]; then exec "$dir/$tool" "$@"; fi
done
# On PATH this file itself may have the program's name: a kit's installer links it so.
IFS=:
for dir in $PATH; do
	if [ -f "$dir/$tool" ] && [ -x "$dir/$tool" ] && ! [ "$dir/$tool" -ef "$self" ]; then exec "$dir/$tool" "$@"; fi
done
if [ -f "$here/$tool" ] && [ -x "$here/$tool" ]; then exec "$here/$tool" "$@"; fi
echo "herd: $tool not found; install the prun suite (make install) or set PRUN_BIN_DIR" >&2
exit 127
