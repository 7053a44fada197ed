package script_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// What an attach point names in a program of C++: cpp: means all overloads and no function of C, patterns match whole names, what is in
// quotes has its brackets and plus signs, and a path its colon.
func TestNamesOfSources(t *testing.T) {
	built := testprog.Build(t, "overloads", "-O2")
	folder := filepath.Join(t.TempDir(), "a:b")
	path := filepath.Join(folder, "c:d")
	ok(t, os.Mkdir(folder, 0o755))
	text, err := os.ReadFile(built)
	ok(t, err)
	ok(t, os.WriteFile(path, text, 0o755))
	p := testprog.Start(t, path)
	s := attach(t, p.Pid)
	for _, tt := range []struct {
		point string
		want  []string // what probe is; "" for refused
	}{
		{`cpp:over`, []string{"cpp:over(double)", "cpp:over(int)"}},
		{`cpp:"over(int)"`, []string{"cpp:over(int)"}},
		{`cpp:plain`, nil},
		{`plain`, []string{"plain"}},
		{`work`, []string{"work"}},
		{`cpp:ns::box::work`, []string{"cpp:ns::box::work(int)", "cpp:ns::box::work(long)"}},
		{`cpp:"ns::work(char const *)"`, []string{"cpp:ns::work(char const*)"}},
		{`cpp:*work*`, []string{"cpp:ns::box::work(int)", "cpp:ns::box::work(long)", "cpp:ns::work(char const*)"}},
		{`cpp:*(long)`, []string{"cpp:int ns::shaped<long>(long)", "cpp:ns::box::work(long)"}},
		{`cpp:ns::shaped*`, []string{"cpp:int ns::shaped<int>(int)", "cpp:int ns::shaped<long>(long)"}},
		{`cpp:"ns::box::operator[](int)"`, []string{"cpp:ns::box::operator[](int)"}},
		{`cpp:"ns::box::operator+(int)"`, []string{"cpp:ns::box::operator+(int)"}},
		{`cpp:"ns::box::operator[]"`, []string{"cpp:ns::box::operator[](int)"}},
		{`"ns::box::operator[](int)"`, []string{"ns::box::operator[](int)"}},
		{`"pl[a]in"`, nil},
		{`pl[a]in`, []string{"plain"}},
		{`"pl*n"`, []string{"plain"}},
		{`over*+1`, nil},
		{`cpp:over+1`, nil},
	} {
		for _, provider := range []string{"uprobe", "uretprobe"} {
			at := provider + `:"` + path + `":` + tt.point
			out, told, _, err := run(at+` { @[probe] = count(); }`, script.Options{PID: p.Pid, Quiet: true}, s, func() { p.Round("3") })
			var want, got []string
			for _, name := range tt.want {
				want = append(want, "@["+provider+":"+path+":"+name+"]: 3")
			}
			for line := range strings.Lines(out) {
				if line = strings.TrimSpace(line); line != "" {
					got = append(got, line)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) || (err == nil) != (want != nil) {
				t.Errorf("%s\nis %q\nnot %q: %v %s", at, got, want, err, told)
			}
			if strings.Contains(tt.point, "+1") {
				continue
			}
			list, err := script.List(at, false, 0)
			ok(t, err)
			var listed []string
			for _, name := range tt.want {
				listed = append(listed, provider+":"+path+":"+name)
			}
			if strings.HasPrefix(tt.point, `"ns`) { // found as C++ has it, and listed as the file has it
				listed = []string{provider + ":" + path + ":_ZN2ns3boxixEi"}
			}
			if !slices.Equal(list, listed) {
				t.Errorf("-l %s\nis %q\nnot %q", at, list, listed)
			}
		}
	}
}
