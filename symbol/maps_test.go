package symbol

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseMaps(t *testing.T) {
	text := `55d0a000-55d0b000 r--p 00000000 fe:01 131 /usr/bin/my prog
55d0b000-55d0c000 r-xp 00001000 fe:01 131                                /usr/bin/my prog (deleted)
55d0d000-55d0e000 rw-p 00000000 00:00 0 
55d0e000-55d0f000 rw-s 00002000 00:01 2048                               /memfd:a\012b (deleted)
7ffc1000-7ffc2000 rw-p 00000000 00:00 0                                  [stack]
7ffc3000-7ffc4000 ---p 00000000 00:00 0                                  [anon: name (deleted)]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`
	want := []Mapping{
		{Start: 0x55d0a000, End: 0x55d0b000, Read: true, Dev: "fe:01", Inode: 131, Path: "/usr/bin/my prog"},
		{Start: 0x55d0b000, End: 0x55d0c000, Off: 0x1000, Read: true, Exec: true, Dev: "fe:01", Inode: 131, Path: "/usr/bin/my prog", Deleted: true},
		{Start: 0x55d0d000, End: 0x55d0e000, Read: true, Write: true, Dev: "00:00"},
		{Start: 0x55d0e000, End: 0x55d0f000, Off: 0x2000, Read: true, Write: true, Shared: true, Dev: "00:01", Inode: 2048, Path: "/memfd:a\nb", Deleted: true},
		{Start: 0x7ffc1000, End: 0x7ffc2000, Read: true, Write: true, Dev: "00:00", Path: "[stack]"},
		{Start: 0x7ffc3000, End: 0x7ffc4000, Dev: "00:00", Path: "[anon: name (deleted)]"},
		{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Dev: "00:00", Path: "[vsyscall]"},
	}
	got, err := ParseMaps(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, bad := range []string{
		"x", "1-2", "1-2 r-xp 0 0:0", "2-1 r-xp 0 0:0 0", "1-g r-xp 0 0:0 0", "1-2 r-x 0 0:0 0", "1-2 r-xp 0 0:0 x", "1-2 r-xp z 0:0 0",
		"1-2  r-xp 0 0:0 0", "11111111111111111-2 r-xp 0 0:0 0", "\n", strings.Repeat("x", maxMapsLine+1),
	} {
		if m, err := ParseMaps(strings.NewReader("1000-2000 r-xp 0 0:0 0\n" + bad + "\n")); err == nil {
			t.Errorf("%.40q is accepted: %+v", bad, m)
		} else if !strings.Contains(err.Error(), "maps") {
			t.Errorf("error %v", err)
		}
	}
}

// The kernel's own text of a mapping with a hard name.
func TestParseMapsOfKernel(t *testing.T) {
	for _, name := range []string{"plain", "with space", " leading", "two\nlines", `back\slash`, "x (deleted) y"} {
		path := filepath.Join(t.TempDir(), name)
		copyFile(t, path, build(t, "gcc", "wait.c", "#include <stdio.h>\nint main(void) { puts(\"up\"); fflush(stdout); getchar(); return 0; }"))
		p := start(t, path)
		if !contains(p.maps(t), func(m Mapping) bool { return m.Path == path && m.Exec && !m.Deleted }) {
			t.Errorf("no executable mapping of %q", path)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if !contains(p.maps(t), func(m Mapping) bool { return m.Path == path && m.Exec && m.Deleted }) {
			t.Errorf("no deleted mapping of %q", path)
		}
	}
}

func contains(maps []Mapping, is func(Mapping) bool) bool {
	for _, m := range maps {
		if is(m) {
			return true
		}
	}
	return false
}

// format writes a mapping as the kernel does.
func format(m Mapping) string {
	flag := func(set bool, yes, no string) string {
		if set {
			return yes
		}
		return no
	}
	path := strings.ReplaceAll(m.Path, "\n", `\012`)
	if m.Deleted {
		path += deletedSuffix
	}
	perms := flag(m.Read, "r", "-") + flag(m.Write, "w", "-") + flag(m.Exec, "x", "-") + flag(m.Shared, "s", "p")
	line := fmt.Sprintf("%08x-%08x %s %08x %s %d ", m.Start, m.End, perms, m.Off, m.Dev, m.Inode)
	if path != "" {
		line = fmt.Sprintf("%-73s%s", line, path)
	}
	return line + "\n"
}

func FuzzParseMaps(f *testing.F) {
	if own, err := os.ReadFile("/proc/self/maps"); err == nil {
		f.Add(string(own))
	}
	f.Add("55d0a000-55d0b000 r--p 00000000 fe:01 131    /usr/bin/my prog (deleted)\n")
	f.Add("1-2 rwxs 0 0:0 1 \\012")
	f.Add("0-1 --xp 0 0 1 \n0-1 --xp 0 0 2 \n") // overlapping: once a module without memory
	f.Fuzz(func(t *testing.T, text string) {
		maps, err := ParseMaps(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for _, m := range maps {
			if strings.ContainsAny(m.Path, "\r\\") || strings.HasSuffix(m.Path, deletedSuffix) {
				return // not a line of the kernel's, or ambiguous there too
			}
			again.WriteString(format(m))
		}
		back, err := ParseMaps(strings.NewReader(again.String()))
		if err != nil || !reflect.DeepEqual(back, maps) {
			t.Fatalf("%q\nwas %+v\nis  %+v, %v", again.String(), maps, back, err)
		}
		// Any list of mappings can be grouped.
		s := NewSpace(func(Mapping) (*File, error) { return nil, os.ErrPermission })
		s.Update(maps)
		for _, m := range s.Modules() {
			if m.Start >= m.End || m.Err == nil || len(m.Mappings) == 0 {
				t.Fatalf("module %+v", m)
			}
		}
	})
}
