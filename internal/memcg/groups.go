package memcg

import (
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"kprobe/internal/proc"
)

// version is how the files of one version of control groups are called.
type version struct {
	budgets  []budget
	stat     string
	inactive string   // of memory.stat: files' pages that were not used for long
	unready  []string // and those of them, and of others, that must be written first
	alone    string   // a file of a group that the groups below it do not count in, where that says 0
}

// budget is a limit, and what counts in it.
type budget struct{ limit, used string }

var (
	first = &version{
		budgets: []budget{
			{"memory.limit_in_bytes", "memory.usage_in_bytes"},
			{"memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"},
		},
		stat: "memory.stat", inactive: "total_inactive_file", unready: []string{"total_dirty", "total_writeback"},
		alone: "memory.use_hierarchy",
	}
	// Beyond memory.high nothing is killed, but all threads of the group stand for most of the time.
	second = &version{
		budgets: []budget{{"memory.max", "memory.current"}, {"memory.high", "memory.current"}},
		stat:    "memory.stat", inactive: "inactive_file", unready: []string{"file_dirty", "file_writeback"},
	}
)

// mount is a place where groups are seen.
type mount struct {
	root, at string // the group that is seen there, and where
	of       *version
}

// mounts are those that this process has. They are looked for once.
var mounts = sync.OnceValue(func() []mount {
	b, _ := proc.ReadFile(proc.Thread(os.Getpid()).File("mountinfo"), 16<<10)
	return mountsIn(string(b))
})

// mountsIn finds them in what a mountinfo file says (proc(5)).
func mountsIn(mountinfo string) (all []mount) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		its, behind := strings.Fields(before), strings.Fields(after)
		if !ok || len(its) < 5 || len(behind) < 3 {
			continue
		}
		m := mount{root: unescape(its[3]), at: unescape(its[4])}
		switch {
		case behind[0] == "cgroup2":
			m.of = second
		case behind[0] == "cgroup" && slices.Contains(strings.Split(behind[2], ","), "memory"):
			m.of = first
		default:
			continue
		}
		all = append(all, m)
	}
	return all
}

// unescape undoes what the kernel does to blanks in paths.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// of is Of by what the files say. A limit that cannot be read is none that is known.
func of(groups string, mounts []mount, read func(name string, most int) ([]byte, error)) (least Left, some bool) {
	group, v := groupIn(groups)
	dir, top := folder(group, v, mounts)
	if dir == "" {
		return least, false
	}
	number := func(name string) (uint64, bool) {
		b, err := read(path.Join(dir, name), 64)
		n, e := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return n, err == nil && e == nil
	}
	for below := false; ; dir, group, below = path.Dir(dir), path.Dir(group), true {
		if n, ok := number(v.alone); v.alone != "" && below && ok && n == 0 {
			return least, some
		}
		free := uint64(math.MaxUint64)
		for _, b := range v.budgets {
			limit, ok := number(b.limit)
			if !ok || limit >= 1<<62 {
				continue // "max", or none; files that a kernel does not have
			}
			used, known := number(b.used)
			if !known {
				continue
			}
			if free == math.MaxUint64 {
				stat, _ := read(path.Join(dir, v.stat), 4<<10)
				free = v.reclaimable(string(stat))
			}
			l := Left{Limit: limit, Group: group}
			if used -= min(used, free); used < limit {
				l.Bytes = limit - used
			}
			if !some || l.Bytes < least.Bytes {
				least, some = l, true
			}
		}
		if dir == top {
			return least, some
		}
	}
}

// groupIn is the group that a process is in, by its cgroup file, and of which version that is which counts memory.
func groupIn(groups string) (group string, v *version) {
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(f) < 3:
		case f[0] == "0" && f[1] == "" && v == nil:
			group, v = f[2], second
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			group, v = f[2], first
		}
	}
	return group, v
}

// folder is where a group is seen, and the highest group above it: "" where it is nowhere. Where it is seen in several places, the one
// that shows most above it is taken.
func folder(group string, v *version, mounts []mount) (dir, top string) {
	shows := math.MaxInt
	for _, m := range mounts {
		in, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
		if m.of == v && ok && (in == "" || in[0] == '/') && len(m.root) < shows && !strings.Contains(group, "/..") {
			dir, top, shows = path.Join(m.at, in), path.Clean(m.at), len(m.root)
		}
	}
	return dir, top
}

// reclaimable are the bytes that the kernel takes back before it ends a process: of files' pages that were not used for long, and that are on disk
// as they are. Dirty pages must be written first, and whose they are is not told.
func (v *version) reclaimable(stat string) (n uint64) {
	value := func(name string) (n uint64) {
		for line := range strings.Lines(stat) {
			if s, ok := strings.CutPrefix(line, name+" "); ok {
				n, _ = strconv.ParseUint(strings.TrimSpace(s), 10, 64)
			}
		}
		return n
	}
	n = value(v.inactive)
	for _, name := range v.unready {
		n -= min(n, value(name))
	}
	return n
}
