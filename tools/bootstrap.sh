# Shared by ./check and ./demo (sourced, not run): Debian packages, the Python environment .venv, build and
# installation.
#
# Callers: set ROOT to the folder of the sources and call `begin "$@"`, then `bootstrap PRESET [requirements file …]`.
# Idempotent: what is there already is left alone. Needs root (or sudo without a password) only when a Debian package is
# missing; else, and on other systems, it names the packages and stops.

# A program, a header, or a module of pkg-config; its package of Debian, Fedora and Arch. gcc stands for any compiler.
NEEDED="gcc gcc gcc gcc
stdio.h libc6-dev glibc-devel glibc
make make make make
pkg-config pkg-config pkgconf-pkg-config pkgconf
libzmq libzmq3-dev zeromq-devel zeromq
jansson libjansson-dev jansson-devel jansson
libcrypto libssl-dev openssl-devel openssl
libseccomp libseccomp-dev libseccomp-devel libseccomp
sqlite3.h libsqlite3-dev sqlite-devel sqlite
cmocka libcmocka-dev libcmocka-devel cmocka"
OPTIONAL="scdoc" # for the manual pages
VENV=$ROOT/.venv
STILL_SECONDS=30 # between two signs that something goes on

say() {
	printf '== %s\n' "$*"
}

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# The caller is told what it asked for with --help: its own head.
no_arguments() {
	[ $# -ne 0 ] || return 0
	case $1 in
	-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
	*) die "there is no argument '$1'; --help says what this does" ;;
	esac
	exit 0
}

# What ./check and ./demo do first. Two at once would write each other's build and .venv: who holds the lock has its
# number in it. What it starts holds it, too, for as long as that runs.
begin() {
	local thing lock=$ROOT/build/running status=0
	no_arguments "$@"
	for thing in "$ROOT" "$ROOT/build" "$lock" "$VENV" "$ROOT/demo-output"; do
		[ ! -e "$thing" ] || [ -w "$thing" ] || die "$thing can't be written by $(id -un), perhaps" \
			"since a run by sudo made it; run: sudo chown -R $(id -un) '${thing%/running}'"
	done
	mkdir -p "$ROOT/build"
	exec 9>>"$lock" || exit 1
	flock --nonblock --conflict-exit-code 75 9 || status=$?
	[ $status -ne 75 ] || die "./check or ./demo runs in this folder already (process $(cat "$lock"))," \
		"or what it left running, which this names: fuser '$lock'; wait for its end"
	[ $status -eq 0 ] || die "$lock can't be locked"
	echo $$ >"$lock"
}

# Says that something goes on, until its stdin ends, as it does also where who holds the other end was killed.
# usage: say_still NAME LOG
say_still() {
	local seconds=0
	until read -r -t "$STILL_SECONDS" _; [ $? -le 128 ]; do # more: nothing came in that time
		seconds=$((seconds + STILL_SECONDS))
		say "still running after $seconds s: $1 (its output: $2)"
	done
}

# Runs a command with its output in a log; shows the log only if the command fails.
quietly() {
	local name=$1 log=$ROOT/build/$1.log status=0
	shift
	mkdir -p "$ROOT/build"
	exec 8> >(exec 9>&-; say_still "$name" "$log")
	"$@" >"$log" 2>&1 8>&- || status=$?
	exec 8>&-
	if [ "$status" -ne 0 ]; then
		tail -n 60 "$log" >&2
		printf '%s: this failed: %s (whole output: %s)\n' "${0##*/}" "$*" "$log" >&2
	fi
	return "$status"
}

# A Python of at least 3.9 that can make environments: the one on PATH, else the system's. Where root's own lies in
# root's home the system's comes first: with it tests also try what root starts as somebody else.
find_python() {
	local candidate found=
	for candidate in python3 /usr/bin/python3; do
		"$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
			continue
		found=${found:-$candidate}
		if [ "$(id -u)" -ne 0 ] || others_can_start "$candidate"; then
			found=$candidate
			break
		fi
	done
	[ -n "$found" ] && printf '%s\n' "$found"
}

others_can_start() {
	runuser -u nobody -- test -x "$("$1" -c 'import os, sys; print(os.path.realpath(sys.executable))')" 2>/dev/null
}

# Those of the given packages that are not installed; none where nothing can be told. Since Debian 13 and Ubuntu 24.04
# the names of some libraries end in t64; apt-get knows them by the old ones.
missing_packages() {
	local package
	command -v dpkg-query >/dev/null || return 0
	for package; do
		case $(dpkg-query -W -f='${db:Status-Abbrev}' "$package" "${package}t64" 2>/dev/null) in
		*ii*) ;;
		*) printf ' %s' "$package" ;;
		esac
	done
}

may_install() {
	[ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null
}

apt_install() {
	local sudo=""
	[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
	say "installing packages: $*"
	export DEBIAN_FRONTEND=noninteractive
	quietly apt-update $sudo apt-get update ||
		say "the lists of packages may be old: one of their sources did not answer"
	quietly apt-install $sudo apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=900 "$@"
}

has() {
	case $1 in
	gcc) ${CC:-cc} --version ;;
	*.h) ${CC:-cc} -E -include "$1" -x c - ;;
	*) command -v "$1" || pkg-config --exists "$1" ;;
	esac </dev/null >/dev/null 2>&1
}

# The packages of what is needed and not there, by looking for it; the words are columns of NEEDED.
# usage: missing_of COLUMN
missing_of() {
	local thing debian fedora arch
	while read -r thing debian fedora arch; do
		has "$thing" || printf ' %s' "${!1}"
	done <<<"$NEEDED"
}

# What is missing where there is no apt-get: only said.
name_packages() {
	local column=debian python=python3-venv install="this system's packages that hold the same as Debian's" missing
	getconf GNU_LIBC_VERSION >/dev/null 2>&1 || die "Cellblock needs the GNU C library, which is not this system's"
	if command -v dnf >/dev/null; then
		column=fedora python=python3 install="dnf install"
	elif command -v pacman >/dev/null; then
		column=arch python=python install="pacman -S"
	fi
	missing=$(missing_of "$column")
	find_python >/dev/null || missing="$missing $python"
	[ -z "$missing" ] || die "these are missing; ask an administrator to install them: $install$missing"
}

# shellcheck disable=SC2046,SC2086 # words are meant to be split
install_packages() {
	local missing
	command -v apt-get >/dev/null || { name_packages; return; }
	missing=$(missing_packages $(cut -d' ' -f2 <<<"$NEEDED"))
	find_python >/dev/null || missing="$missing python3 python3-venv"
	[ -n "$missing" ] || return 0
	may_install || die "these packages are missing; ask an administrator to run: apt-get install$missing"
	apt_install $missing || die "could not install:$missing"
}

# What only some tests or parts use: they are skipped without it.
# shellcheck disable=SC2086 # words are meant to be split
want_packages() {
	local missing
	missing=$(missing_packages "$@")
	[ -n "$missing" ] || return 0
	{ may_install && apt_install $missing; } || say "not installed, so what needs them is skipped:$missing"
}

# A .venv that works. What is installed in one stays there: one whose Python does not start, since it was copied or that
# Python is gone, gets another Python of the same version.
# usage: make_venv [requirements file …]
make_venv() {
	local python version stamp
	python=$(find_python) || die "no Python of at least 3.9 with the venv module; install python3 and python3-venv"
	version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
	if "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
		:
	elif "$VENV/bin/python" -c '' 2>/dev/null; then # uv makes them without pip; or it has another version now
		rm -f "$VENV/.requirements" "$VENV/.client"
		quietly venv "$VENV/bin/python" -m ensurepip --default-pip || exit 1
		quietly pip-there "$VENV/bin/python" -m pip --version ||
			die "the pip of $VENV is broken; move $VENV away"
	elif [ ! -d "$VENV/lib" ] || [ -d "$VENV/lib/$version" ]; then
		say "making $VENV with $("$python" --version)"
		[ -d "$VENV/lib" ] || rm -f "$VENV/.requirements" "$VENV/.client"
		rm -f "$VENV"/bin/python*
		quietly venv "$python" -m venv "$VENV" || exit 1
	else
		die "the Python of $VENV does not start, and $python has another version; move $VENV away"
	fi
	if ! head -n 1 "$VENV/bin/pip" | grep -qF "#!$VENV/bin/python"; then # its programs start another's Python
		grep -rlZIE '^#!.*/\.venv/bin/python' "$VENV/bin" |
			xargs -0 -r sed -i "1s|^#!.*/\.venv/bin/python[0-9.]*|#!$VENV/bin/python|"
	fi
	set -- "$ROOT/tests/requirements.txt" "$@"
	stamp=$(cat "$@" "$ROOT/tests/requirements.lock" | cksum)
	[ "$(cat "$VENV/.requirements" 2>/dev/null)" = "$stamp" ] && return 0
	say "installing Jupyter clients into $VENV: more than 200 packages, some minutes where they are downloaded"
	rm -f "$VENV/.requirements" # until all of it is there
	install_python "$@" || exit 1
	printf '%s\n' "$stamp" >"$VENV/.requirements"
}

# By uv, which takes a third of pip's time; by pip where uv can't, since uv does not read pip's settings. The first
# file's packages are compiled at once, for a jail can't keep what it compiles, but not their tests, which are half of
# all, nor what no cell imports as Python; those of the others are when somebody imports them.
# usage: install_python REQUIREMENTS …
install_python() {
	local python=$VENV/bin/python lock=--constraint=$ROOT/tests/requirements.lock
	quietly pip-uv "$python" -m pip install --disable-pip-version-check \
		"$(grep '^uv==' "$ROOT/tests/requirements.txt")" &&
		quietly uv uv_install --requirement="$1" "$lock" &&
		quietly compile-all compile_all &&
		quietly uv-more uv_install "${@/#/--requirement=}" "$lock" && return 0
	say "uv could not do it: now with pip"
	quietly pip "$python" -m pip install --disable-pip-version-check "${@/#/--requirement=}" "$lock"
}

# What no Python can compile, such as templates of other languages, is left.
compile_all() {
	"$VENV/bin/python" -m compileall -q -j "$(nproc)" -x '/(tests|mypyc?|devtools|graph_objs/[a-z]+)/' \
		"$VENV/lib" || true
}

uv_install() {
	"$VENV/bin/uv" pip install --python "$VENV/bin/python" --link-mode copy "$@"
}

# CMake of at least 3.25 is there.
has_cmake() {
	local version
	version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
	[ "$(printf '3.25\n%s\n' "${version:-0}" | sort -V | head -n 1)" = 3.25 ]
}

# The system's, else one from PyPI in .venv.
find_cmake() {
	! has_cmake || return 0
	if ! "$VENV/bin/cmake" --version >/dev/null 2>&1; then # or it is one of an older Python's
		say "installing cmake into .venv"
		quietly pip-cmake "$VENV/bin/python" -m pip install --disable-pip-version-check \
			'cmake>=3.25,<4' || exit 1
	fi
	PATH=$VENV/bin:$PATH
}

build() {
	local cache=$ROOT/build/$1/CMakeCache.txt source=CMAKE_HOME_DIRECTORY:INTERNAL=
	say "building (preset $1)"
	if [ -f "$cache" ] && ! grep -qxF -e "$source$ROOT" -e "$source$(cd "$ROOT" && pwd -P)" "$cache"; then
		rm -rf "$ROOT/build/$1" # made for another folder, from which this one was moved or copied
	fi
	(cd "$ROOT" && quietly "configure-$1" cmake --preset "$1" &&
		quietly "build-$1" cmake --build "build/$1" --parallel "$(nproc)") || exit 1
}

# Ends this process and all below it, also those with a session of their own; "" is none.
# usage: end_below PID
end_below() {
	local child children
	[ -n "$1" ] || return 0
	children=$(pgrep -P "$1")
	kill "$1" 2>/dev/null
	for child in $children; do end_below "$child"; done
}

# Programs to .venv/bin and .venv/libexec, the kernelspec to .venv/share/jupyter/kernels/cellblock.
install_kernel() {
	quietly "install-$1" cmake --install "$ROOT/build/$1" --prefix "$VENV" || exit 1
	install_kernelspec
}

install_kernelspec() {
	quietly kernelspec "$VENV/bin/cellblock" install --sys-prefix --python "$VENV/bin/python" || exit 1
}

# The Python client: a copy, for a path of the sources on Python's search path is one that no jail sees.
install_client() {
	local stamp
	stamp=$(cd "$ROOT/clients/python" && find . -type f ! -name '*.pyc' -exec cksum {} + | sort | cksum)
	[ "$(cat "$VENV/.client" 2>/dev/null)" = "$stamp" ] && return 0
	say "installing the Python client into .venv"
	rm -f "$VENV/.client"
	quietly client "$VENV/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation \
		--force-reinstall "$ROOT/clients/python" || exit 1
	printf '%s\n' "$stamp" >"$VENV/.client"
}

bootstrap() {
	local preset=$1
	shift
	install_packages
	want_packages $OPTIONAL
	if has_cmake; then # beside what waits for the network
		build "$preset" &
		(make_venv "$@") && wait $! ||
			{ wait; die "not all is built and installed: the first thing that failed is said above"; }
	else
		make_venv "$@"
		find_cmake
		build "$preset"
	fi
	install_kernel "$preset"
	install_client
}
