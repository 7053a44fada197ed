package headers_test

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script/headers"
)

var update = flag.Bool("update", false, "write constants.txt anew from this machine's headers")

// sources are the headers whose constants the table has: the kernel's for programs, and where these lack a name the C library's.
var sources = strings.Fields(`
	asm/errno.h asm/fcntl.h asm/ioctls.h asm/mman.h asm/poll.h asm/resource.h asm/signal.h asm/socket.h asm/siginfo.h
	linux/audit.h linux/capability.h linux/elf.h linux/falloc.h linux/fanotify.h linux/fs.h linux/futex.h linux/icmp.h linux/icmpv6.h
	linux/if.h linux/if_addr.h linux/if_arp.h linux/if_ether.h linux/if_link.h linux/if_packet.h linux/if_tun.h linux/if_vlan.h linux/igmp.h
	linux/in.h linux/in6.h linux/inet_diag.h linux/inotify.h linux/io_uring.h linux/ioprio.h linux/ip.h linux/ipv6.h linux/limits.h
	linux/magic.h linux/major.h linux/membarrier.h linux/memfd.h linux/mempolicy.h linux/mount.h linux/neighbour.h linux/net_tstamp.h
	linux/netfilter.h linux/netfilter_ipv4.h linux/netlink.h linux/nsfs.h linux/openat2.h linux/perf_event.h linux/personality.h linux/prctl.h linux/ptrace.h
	linux/random.h linux/reboot.h linux/route.h linux/rtnetlink.h linux/sched.h linux/seccomp.h linux/sock_diag.h linux/socket.h linux/sockios.h
	linux/stat.h linux/tcp.h linux/time.h linux/udp.h linux/un.h linux/userfaultfd.h linux/vm_sockets.h linux/wait.h linux/xattr.h
	dirent.h errno.h fcntl.h netinet/icmp6.h netinet/in.h netinet/ip_icmp.h netinet/tcp.h poll.h sched.h signal.h
	sys/epoll.h sys/eventfd.h sys/fanotify.h sys/inotify.h sys/mman.h sys/mount.h sys/ptrace.h sys/resource.h
	sys/socket.h sys/stat.h sys/timerfd.h sys/uio.h sys/un.h sys/wait.h time.h unistd.h`)

// plain are names that mean something by themselves; those of one header alone, such as _LINUX_IN_H, do not.
var plain = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// constantsOf are a header's, as the compiler has them: of its own and of those that it includes.
func constantsOf(t *testing.T, dir, header string) map[string]int64 {
	compile := func(text string, args ...string) (string, string, error) {
		c := exec.Command("gcc", append(args, "-D_GNU_SOURCE", "-w", "-fmax-errors=0", "-xc", "-")...)
		c.Stdin = strings.NewReader(text)
		var out, told bytes.Buffer
		c.Stdout, c.Stderr = &out, &told
		err := c.Run()
		return out.String(), told.String(), err
	}
	include := fmt.Sprintf("#include <%s>\n", header)
	if strings.HasPrefix(header, "linux/") { // some want these
		include = "#include <stdint.h>\n#include <stddef.h>\n" + include
	}
	macros, told, err := compile(include, "-E", "-dD")
	if err != nil {
		t.Logf("%s: %s", header, told)
		return nil
	}
	names, file := map[string]bool{}, ""
	marker, define, word := regexp.MustCompile(`^# \d+ "(.*?)"`), regexp.MustCompile(`^#define (\w+) `), regexp.MustCompile(`\b[A-Z][A-Z0-9_]*\b`)
	for line := range strings.Lines(macros) {
		if m := marker.FindStringSubmatch(line); m != nil {
			file = m[1]
			continue
		}
		if !strings.HasPrefix(file, "/usr/include/") {
			continue // the compiler's own
		}
		if m := define.FindStringSubmatch(line); m != nil {
			names[m[1]] = true
		} else if !strings.HasPrefix(line, "#") {
			for _, w := range word.FindAllString(line, -1) { // enumerators, among others
				names[w] = true
			}
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return !plain.MatchString(name) })
	// What is no constant is refused, and left out.
	for range 3 {
		var b strings.Builder
		b.WriteString(include)
		at := map[int]string{}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			at[strings.Count(b.String(), "\n")+1] = name
			fmt.Fprintf(&b, "static const long long value_%s = (long long)(%[1]s) + 0 * sizeof(char[(%[1]s) * 0 + 1]);\n", name)
		}
		_, told, err := compile(b.String(), "-fsyntax-only")
		if err == nil {
			break
		}
		for _, m := range regexp.MustCompile(`<stdin>:(\d+):\d+: error`).FindAllStringSubmatch(told, -1) {
			n, _ := strconv.Atoi(m[1])
			delete(names, at[n])
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s#include <stdio.h>\nint main(void) {\n", include)
	for name := range names {
		fmt.Fprintf(&b, "\tprintf(\"%s %%lld\\n\", (long long)(%[1]s));\n", name)
	}
	b.WriteString("}\n")
	program := filepath.Join(dir, "values")
	if _, told, err := compile(b.String(), "-o", program); err != nil {
		t.Logf("%s: %s", header, told) // it goes with none of the others
		return nil
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		if all[name], err = strconv.ParseInt(value, 10, 64); err != nil {
			t.Error(err)
		}
	}
	return all
}

// The table says what this machine's headers do. Of those that differ from each other the first is right: the kernel's own.
func TestConstants(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		return // the numbers are those of x86-64
	}
	_, err := exec.LookPath("gcc")
	testprog.Need(t, "gcc reads the headers", err == nil)
	read := sources
	if testing.Short() && !*update {
		read = []string{"asm/fcntl.h", "asm/signal.h", "linux/in.h", "linux/icmp.h", "sys/stat.h", "dirent.h", "errno.h", "sys/socket.h"}
	}
	all := map[string]int64{}
	for _, header := range read {
		for name, n := range constantsOf(t, t.TempDir(), header) {
			if there, known := all[name]; !known {
				all[name] = n
			} else if there != n {
				t.Logf("%s is %d, and %d in %s", name, there, n, header)
			}
		}
	}
	if *update {
		var b strings.Builder
		fmt.Fprintf(&b, "# Made by go test -update from the headers of linux-libc-dev %s and libc6-dev %s, by gcc on x86-64.\n", version(t, "linux-libc-dev"), version(t, "libc6-dev"))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&b, "%s %d\n", name, all[name])
		}
		if err := os.WriteFile("constants.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d constants", len(all))
		return
	}
	known := 0
	for name, n := range all {
		if got, ok := headers.Constant(name, "x86_64"); ok {
			known++
			if got != uint64(n) {
				t.Errorf("%s is %d, and %d here", name, int64(got), n)
			}
		}
	}
	if known < 500 {
		t.Errorf("%d constants are known", known)
	}
}

func version(t *testing.T, pkg string) string {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", pkg).Output()
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Or(strings.TrimSpace(string(out)), "of an unknown version")
}
