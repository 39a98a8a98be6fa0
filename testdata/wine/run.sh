#!/bin/sh
# Runs a Windows program under Wine: run.sh PROGRAM.exe [ARG...]; without a program it only prepares.
#
# It needs wine64 and, once, a MinGW C compiler. As root on Debian or a relative of it both are installed when they
# are missing; anyone else is told their names (exit 77). The Wine prefix is our own and lies in the user's cache.
set -eu
prefix="${PRUN_WINE_PREFIX:-${XDG_CACHE_HOME:-$HOME/.cache}/prun/wine}"
export WINEPREFIX="$prefix" WINEDEBUG="${WINEDEBUG:--all}" WINEDLLOVERRIDES="mscoree=d;mshtml=d;winemenubuilder.exe=d"

# Debian keeps the 64 bit loader out of PATH; /usr/bin/wine also looks for the 32 bit one and complains.
loader() {
	for w in wine64 /usr/lib/wine/wine64 /usr/lib64/wine/wine64 wine; do
		if command -v "$w"; then return 0; fi
	done
	return 1
}
compiler() { command -v x86_64-w64-mingw32-gcc; }

dll="$prefix/drive_c/windows/system32/bcryptprimitives.dll"
missing=
loader >/dev/null || missing="wine64"
[ -e "$dll" ] || compiler >/dev/null || missing="$missing gcc-mingw-w64-x86-64"
if [ -n "$missing" ]; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "run.sh: not installed:$missing" >&2
		exit 77
	fi
	apt-get update -qq >&2
	# shellcheck disable=SC2086 # a list of words
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
fi
wine="$(loader)"

if [ ! -e "$dll" ]; then
	mkdir -p "$prefix"
	"$wine" wineboot -i >/dev/null 2>&1 || true
	# Go programs take their random numbers from ProcessPrng of bcryptprimitives.dll, which Wine has since version 9:
	# this stand-in is for older ones.
	if [ ! -e "$dll" ]; then
		tmp="$(mktemp -d)"
		cat >"$tmp/prng.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE p, SIZE_T n)
{
    while (n) {
        ULONG c = n > 0x10000000 ? 0x10000000 : (ULONG)n;
        if (!SystemFunction036(p, c)) return FALSE;
        p += c; n -= c;
    }
    return TRUE;
}
C
		"$(compiler)" -shared -O2 -o "$tmp/prng.dll" "$tmp/prng.c" -ladvapi32
		mv "$tmp/prng.dll" "$dll"
		rm -rf "$tmp"
	fi
fi
[ $# -gt 0 ] || exit 0
exec "$wine" "$@"
