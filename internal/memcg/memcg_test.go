package memcg

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

const (
	mountOfFirst  = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
	mountOfSecond = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
	otherMounts   = "22 1 0:4 / /proc rw - proc proc rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nnonsense\n"
)

// What is left is by the tightest group on the way up; what cannot be read tells nothing.
func TestLeft(t *testing.T) {
	tests := []struct {
		name, groups, mounts string
		files                map[string]string // below /sys/fs/cgroup
		want                 string            // LEFT LIMIT GROUP; "" where no limit is known
	}{
		{"its own limit", "0::/a\n", mountOfSecond,
			map[string]string{"a/memory.max": "1000\n", "a/memory.current": "400\n", "a/memory.high": "max\n"}, "600 1000 /a"},
		{"one above is tighter", "0::/a/b\n", mountOfSecond,
			map[string]string{"a/b/memory.max": "1000", "a/b/memory.current": "100", "a/memory.max": "2000", "a/memory.current": "1900"}, "100 2000 /a"},
		{"one above, and none of its own", "0::/a/b\n", mountOfSecond,
			map[string]string{"a/b/memory.max": "max", "a/b/memory.current": "100", "a/memory.max": "2000", "a/memory.current": "1900"}, "100 2000 /a"},
		{"a group of threads, which counts no memory", "0::/a/b\n", mountOfSecond,
			map[string]string{"a/memory.max": "2000", "a/memory.current": "1900"}, "100 2000 /a"},
		{"high", "0::/a\n", mountOfSecond,
			map[string]string{"a/memory.max": "1000", "a/memory.high": "500", "a/memory.current": "400"}, "100 500 /a"},
		{"beyond the limit", "0::/a\n", mountOfSecond,
			map[string]string{"a/memory.high": "500", "a/memory.current": "700"}, "0 500 /a"},
		{"what can be taken back", "0::/a\n", mountOfSecond,
			map[string]string{"a/memory.max": "1000", "a/memory.current": "900", "a/memory.stat": "anon 1\ninactive_file 300\nfile_dirty 50\nfile_writeback 10\n"}, "340 1000 /a"},
		{"no limit", "0::/a\n", mountOfSecond, map[string]string{"a/memory.max": "max", "a/memory.current": "100"}, ""},
		{"no files", "0::/a\n", mountOfSecond, nil, ""},
		{"the root", "0::/\n", mountOfSecond, nil, ""},
		{"nothing is mounted", "0::/a\n", "", map[string]string{"a/memory.max": "1000", "a/memory.current": "400"}, ""},
		{"a name with a blank", "0::/a b\n", strings.Replace(mountOfSecond, "/sys/fs/cgroup", `/sys/fs/my\040groups`, 1),
			map[string]string{"../my groups/a b/memory.max": "1000", "../my groups/a b/memory.current": "400"}, "600 1000 /a b"},
		{"below what is mounted", "0::/pod/a\n", strings.Replace(mountOfSecond, " / ", " /pod ", 1),
			map[string]string{"a/memory.max": "1000", "a/memory.current": "400", "memory.max": "500", "memory.current": "450"}, "50 500 /pod"},
		{"beside what is mounted", "0::/podium/a\n", strings.Replace(mountOfSecond, " / ", " /pod ", 1),
			map[string]string{"ium/a/memory.max": "1000", "ium/a/memory.current": "400"}, ""},
		{"out of our namespace", "0::/../a\n", mountOfSecond, map[string]string{"../a/memory.max": "1000", "../a/memory.current": "400"}, ""},

		{"version 1", "4:memory:/a\n0::/\n", mountOfFirst + mountOfSecond,
			map[string]string{"memory/a/memory.limit_in_bytes": "1000\n", "memory/a/memory.usage_in_bytes": "400\n"}, "600 1000 /a"},
		{"version 1, with others", "0::/x\n4:cpu,memory:/a\n", strings.Replace(mountOfFirst, "rw,memory", "rw,cpu,memory", 1),
			map[string]string{"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "400"}, "600 1000 /a"},
		{"version 1, no limit", "4:memory:/a\n", mountOfFirst,
			map[string]string{"memory/a/memory.limit_in_bytes": "9223372036854771712", "memory/a/memory.usage_in_bytes": "400"}, ""},
		{"version 1, with swap", "4:memory:/a\n", mountOfFirst,
			map[string]string{"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "400",
				"memory/a/memory.memsw.limit_in_bytes": "1000", "memory/a/memory.memsw.usage_in_bytes": "950"}, "50 1000 /a"},
		{"version 1, taken back", "4:memory:/a\n", mountOfFirst,
			map[string]string{"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "900",
				"memory/a/memory.stat": "inactive_file 7\ntotal_inactive_file 300\ntotal_dirty 100\n"}, "300 1000 /a"},
		{"version 1, above", "4:memory:/a/b\n", mountOfFirst,
			map[string]string{"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "400", "memory/a/memory.use_hierarchy": "1"}, "600 1000 /a"},
		{"version 1, above, where that does not count", "4:memory:/a/b\n", mountOfFirst,
			map[string]string{"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "400", "memory/a/memory.use_hierarchy": "0"}, ""},
	}
	for _, tt := range tests {
		files := map[string]string{}
		for name, text := range tt.files {
			if up, ok := strings.CutPrefix(name, "../"); ok {
				files["/sys/fs/"+up] = text
			} else {
				files["/sys/fs/cgroup/"+name] = text
			}
		}
		left, ok := of(tt.groups, mountsIn(otherMounts+tt.mounts), func(name string, _ int) ([]byte, error) {
			text, ok := files[name]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		})
		want := Left{}
		if tt.want != "" {
			f := strings.SplitN(tt.want, " ", 3)
			want = Left{Bytes: number(f[0]), Limit: number(f[1]), Group: f[2]}
		}
		if ok != (tt.want != "") || left != want {
			t.Errorf("%s: %+v, %v; want %q", tt.name, left, ok, tt.want)
		}
	}
}

func number(s string) (n uint64) {
	for _, c := range s {
		n = 10*n + uint64(c-'0')
	}
	return n
}

// A reserve is kept, which grows with the limit; the refusal has the numbers.
func TestAfford(t *testing.T) {
	const mib = 1 << 20
	tests := []struct {
		left  Left
		bytes uint64
		ok    bool
	}{
		{Left{Bytes: 2 * mib, Limit: 8 * mib}, mib, true},
		{Left{Bytes: 2 * mib, Limit: 8 * mib}, mib + 1, false},
		{Left{Bytes: 0, Limit: 8 * mib}, 1, false},
		{Left{Bytes: 0, Limit: 8 * mib}, 0, true}, // what takes nothing is never refused
		{Left{Bytes: 5 * mib, Limit: 64 * mib}, mib, true},
		{Left{Bytes: 5 * mib, Limit: 64 * mib}, mib + 1, false},
	}
	for _, tt := range tests {
		err := tt.left.Afford(tt.bytes)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("%d bytes of %+v: %v", tt.bytes, tt.left, err)
		}
	}
	err := Left{Bytes: 2 * mib, Limit: 64 * mib, Group: "/a"}.Afford(3 * mib)
	const want = "probes need some 3072 KiB of memory in the process: its control group /a has 2048 KiB left of 65536 KiB, and 4096 KiB are kept for the program itself"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
