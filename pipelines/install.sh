#!/bin/sh
# Installs the program from the directory of a release, which holds this script, archives and SHA256SUMS.
#
#   install.sh [--to DIR] [RELEASE]
#
#   RELEASE   the directory of the release (default: that of this script)
#   --to DIR  the directory of the program (default: ~/.local/bin)
set -eu

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

release=$(dirname -- "$0")
to=${HOME:-}/.local/bin
while [ $# -gt 0 ]; do
    case $1 in
        --to)
            [ $# -gt 1 ] || fail "--to takes a directory"
            to=$2
            shift
            ;;
        --help | -h)
            sed -n '2,7s/^# \{0,1\}//p' "$0"
            exit 0
            ;;
        -*) fail "there is no option $1; see --help" ;;
        *) release=$1 ;;
    esac
    shift
done

system=$(uname -s)
machine=$(uname -m)
[ "$machine" != arm64 ] || machine=aarch64
case $system in
    Linux) target=$machine-unknown-linux-gnu ;;
    Darwin) target=$machine-apple-darwin ;;
    *) fail "there is no program for $system" ;;
esac

# One version for each release: the archive of this machine is the one that ends with its target.
archive=
for file in "$release"/forebay-*-"$target".tar.gz; do
    [ -f "$file" ] || continue
    [ -z "$archive" ] || fail "$release holds several versions: $archive and $file"
    archive=$file
done
[ -n "$archive" ] || fail "$release holds no program for $target"
name=$(basename -- "$archive")

if command -v sha256sum >/dev/null 2>&1; then
    digest=$(sha256sum <"$archive")
elif command -v shasum >/dev/null 2>&1; then
    digest=$(shasum -a 256 <"$archive")
else
    fail "neither sha256sum nor shasum is installed, so that the archive cannot be checked"
fi
digest=${digest%% *}
[ -f "$release/SHA256SUMS" ] || fail "$release has no SHA256SUMS"
grep -qxF "$digest  $name" "$release/SHA256SUMS" || fail "$name is not the file that SHA256SUMS names; copy it again"

mkdir -p "$to"
# In the directory of the program: a renamed file is there as a whole or not at all.
work=$(mktemp -d "$to/.forebay-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
gzip -dc <"$archive" | tar -xf - -C "$work"
program=$work/${name%.tar.gz}/forebay
version=$("$program" --version) || fail "the program does not run here; it needs glibc 2.28 or later"
chmod 755 "$program"
mv -f "$program" "$to/forebay"
echo "$version is $to/forebay"
case :${PATH:-}: in
    *:"$to":*) ;;
    *) echo "add $to to PATH" ;;
esac
