#!/bin/sh
# Puts on a Debian or Ubuntu machine what the tests run against: compilers,
# oracles (objdump, gdb) and the real programs that get probed. A thing that is
# already there, from whatever source, is left alone; with all of it there this
# only looks, and takes no time. Where it may not install, it names what is
# missing and fails.
set -eu

# One line per need: the package, and the command or file that proves it. A
# glob is a proof too. python3 is asked for by path, because the tests probe the
# distribution's interpreter, not one that a version manager put first in PATH.
needs() {
	cat <<-'END'
		gcc             gcc
		g++             g++
		libc6-dev       /usr/include/stdio.h
		binutils        objdump
		gdb             gdb
		gdbserver       gdbserver
		git             git
		make            make
		python3         /usr/lib/python3*/json/__init__.py
		python3-minimal /usr/bin/python3
		nodejs          node
		openssl         openssl
		libc-bin        /usr/bin/ldd
		redis-server    redis-server
		redis-tools     redis-benchmark
		nginx-light     nginx
		apache2-utils   ab
		qemu-system-x86 qemu-system-x86_64
		qemu-user       qemu-x86_64
		qemu-system-arm qemu-system-aarch64
		qemu-system-misc qemu-system-s390x
		qemu-system-ppc qemu-system-ppc64
		gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
		libc6-dev-arm64-cross /usr/aarch64-linux-gnu/lib/libc.so.6
		gcc-riscv64-linux-gnu riscv64-linux-gnu-gcc
		libc6-dev-riscv64-cross /usr/riscv64-linux-gnu/lib/libc.so.6
		gcc-s390x-linux-gnu s390x-linux-gnu-gcc
		libc6-dev-s390x-cross /usr/s390x-linux-gnu/lib/libc.so.6
		gcc-powerpc64le-linux-gnu powerpc64le-linux-gnu-gcc
		lz4             lz4
		bzip2           bzip2
		curl            curl
		musl-tools      musl-gcc
		xz-utils        xz
		util-linux      setpriv
		strace          strace
		stress-ng       stress-ng
		procps          ps
		clang           clang
		llvm            llvm-objdump
		lld             ld.lld
		libc6-dev-ppc64el-cross /usr/powerpc64le-linux-gnu/lib/libc.a
		libc6-dev-powerpc-cross /usr/powerpc-linux-gnu/lib/libc.a
		libc6-dev-mips64el-cross /usr/mips64el-linux-gnuabi64/lib/libc.a
		libc6-dev-mipsel-cross /usr/mipsel-linux-gnu/lib/libc.a
		libbpf-dev      /usr/include/bpf/bpf_helpers.h
		rustc           rustc
	END
	# Python's own tests are named after its version.
	v=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
	[ -z "$v" ] || echo "libpython$v-testsuite /usr/lib/python$v/test/test_grammar.py"
	# What compilers put into a program of another machine is of the compiler's version, too.
	v=$(gcc -dumpversion 2>/dev/null || echo 12)
	for m in ppc64el:powerpc64le-linux-gnu powerpc:powerpc-linux-gnu mips64el:mips64el-linux-gnuabi64 mipsel:mipsel-linux-gnu; do
		echo "libgcc-${v%%.*}-dev-${m%:*}-cross /usr/lib/gcc-cross/${m#*:}/*/libgcc.a"
	done
	# -m32 exists on x86-64 only. The package named after the compiler's version
	# is the one that can live beside cross compilers; gcc-multilib removes them.
	if [ "$(uname -m)" = x86_64 ]; then
		v=$(gcc -dumpversion 2>/dev/null || true)
		v=${v%%.*}
		if [ -n "$v" ]; then
			echo "gcc-$v-multilib /usr/lib/gcc/x86_64-linux-gnu/$v/32/libgcc.a"
		else
			echo "gcc-multilib /usr/lib/gcc/x86_64-linux-gnu/*/32/libgcc.a"
		fi
	fi
}

# A daemon's place is not in everybody's PATH.
PATH=$PATH:/usr/sbin:/sbin

present() {
	case $1 in
	/*) set -- $1 && [ -e "$1" ] ;; # unquoted: the proof may be a glob
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

missing() {
	needs | while read -r pkg proof; do
		present "$proof" || echo "$pkg"
	done
}

lacking=$(missing | tr '\n' ' ')
[ -n "$lacking" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "setup: missing: $lacking" >&2
	echo "setup: as root on Debian or Ubuntu: apt-get install $lacking" >&2
	exit 1
fi

# Packages with a daemon start it when installed, and it would hold the ports
# that a test's own instance wants. Debian asks this file first; 101 is "no".
# One that is there already is somebody's decision and stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f $policy' EXIT
	trap 'exit 1' INT TERM HUP
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi

export DEBIAN_FRONTEND=noninteractive
# Twice: what is named after a version is known when that is installed.
for pass in first second; do
	lacking=$(missing | tr '\n' ' ')
	[ -n "$lacking" ] || exit 0
	echo "setup: installing $lacking"
	# --no-remove: a conflict is for a person to settle, not for a test run.
	if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends --no-remove $lacking; } >/dev/null; then
		echo "setup: apt-get could not install all of: $lacking" >&2
		exit 1
	fi
done

lacking=$(missing | tr '\n' ' ')
if [ -n "$lacking" ]; then
	echo "setup: still missing after installing: $lacking" >&2
	exit 1
fi
