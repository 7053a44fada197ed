package spec

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlacesOfProcesses(t *testing.T) {
	for _, c := range []struct {
		in   string
		kind Kind
		want Place
	}{
		{"p:libc.so.6:getenv name=+0(%di):string", Probe, Place{Module: "libc.so.6", Symbol: "getenv"}},
		{"p nginx:ngx_http_process_request", Probe, Place{Module: "nginx", Symbol: "ngx_http_process_request"}},
		{"r nginx:ngx_http_process_request $retval", Return, Place{Module: "nginx", Symbol: "ngx_http_process_request"}},
		{"p:ev malloc", Probe, Place{Symbol: "malloc"}},
		{"p:g/ev libc.so.6:malloc", Probe, Place{Module: "libc.so.6", Symbol: "malloc"}},
		{"r8:ev malloc", Return, Place{Symbol: "malloc"}},
		{"r8:/lib/libc.so.6:malloc", Return, Place{Module: "/lib/libc.so.6", Symbol: "malloc"}},
		{"p malloc+0x10", Probe, Place{Symbol: "malloc", Offset: 16}},
		{"p malloc+010", Probe, Place{Symbol: "malloc", Offset: 8}},
		{"p malloc+4%return", Return, Place{Symbol: "malloc", Offset: 4, PctReturn: true}},
		{"p memcpy@GLIBC_2.14+4", Probe, Place{Symbol: "memcpy", Version: "GLIBC_2.14", Offset: 4}},
		{"p libc.so.6:memcpy@@GLIBC_2.14", Probe, Place{Module: "libc.so.6", Symbol: "memcpy", Version: "GLIBC_2.14"}},
		{"p app:getenv@plt", Probe, Place{Module: "app", Symbol: "getenv", Version: "plt"}},
		{"p 0x401000", Probe, Place{HasAddr: true, Addr: 0x401000}},
		{"p 0x401000%return", Return, Place{HasAddr: true, Addr: 0x401000, PctReturn: true}},
		{"p 4198400", Probe, Place{HasAddr: true, Addr: 4198400}},
		{"p app:0x1000", Probe, Place{Module: "app", HasFileOff: true, FileOff: 0x1000}},
		{"p:/bin/x:4096(0x20)", Probe, Place{Module: "/bin/x", HasFileOff: true, FileOff: 4096, HasRefCtr: true, RefCtr: 32}},
		{"p /bin/x:4096(0)", Probe, Place{Module: "/bin/x", HasFileOff: true, FileOff: 4096}},
		{"p /a:b/c:16%return", Return, Place{Module: "/a:b/c", HasFileOff: true, FileOff: 16, PctReturn: true}},

		{"p std::terminate", Probe, Place{Symbol: "std::terminate"}},
		{"p libstdc++.so.6:std::terminate", Probe, Place{Module: "libstdc++.so.6", Symbol: "std::terminate"}},
		{"p:std::terminate", Probe, Place{Symbol: "std::terminate"}},
		{"p app:::f", Probe, Place{Module: "app", Symbol: "::f"}},
		{`p app:"ns::f(int, char const*)"+8`, Probe, Place{Module: "app", Symbol: "ns::f(int, char const*)", Offset: 8}},
		{`p:"f(int, int)" x=%di`, Probe, Place{Symbol: "f(int, int)"}},
		{`p "/opt/my app/bin":main`, Probe, Place{Module: "/opt/my app/bin", Symbol: "main"}},
		{`p "/opt/my app/bin":"f(int, int)"%return`, Return, Place{Module: "/opt/my app/bin", Symbol: "f(int, int)", PctReturn: true}},
		{`p "/opt/my app/bin":0x10`, Probe, Place{Module: "/opt/my app/bin", HasFileOff: true, FileOff: 16}},
		{`p "f(char*)"`, Probe, Place{Symbol: "f(char*)"}},
		{`p app:"ngx_*"`, Probe, Place{Module: "app", Symbol: "ngx_*", Exact: true}},
		{`p app:"T{a ""json"" }"`, Probe, Place{Module: "app", Symbol: `T{a "json" }`}},
		{"p app:N::operator+", Probe, Place{Module: "app", Symbol: "N::operator+"}},
		{"p app:N::operator%%return", Return, Place{Module: "app", Symbol: "N::operator%", PctReturn: true}},
		{"p app:N::operator++0x10", Probe, Place{Module: "app", Symbol: "N::operator+", Offset: 16}},
		{"p app:N::operator==", Probe, Place{Module: "app", Symbol: "N::operator=="}},
		{"p app:N<-1>::f", Probe, Place{Module: "app", Symbol: "N<-1>::f"}},
		{"p app:foo::{closure#0}", Probe, Place{Module: "app", Symbol: "foo::{closure#0}"}},

		{"w @counter", Watch, Place{Symbol: "counter", Access: "rw", Length: 4}},
		{"w:e w@counter:8", Watch, Place{Symbol: "counter", Access: "w", Length: 8}},
		{"w:w@counter:8", Watch, Place{Symbol: "counter", Access: "w", Length: 8}},
		{"w r@counter+0x10:1", Watch, Place{Symbol: "counter", Offset: 16, Access: "r", Length: 1}},
		{"w rw@counter-8", Watch, Place{Symbol: "counter", Offset: 1<<64 - 8, Access: "rw", Length: 4}},
		{"w rw@counter+0", Watch, Place{Symbol: "counter", Access: "rw", Length: 4}},
		{"w w@libc.so.6:environ:8", Watch, Place{Module: "libc.so.6", Symbol: "environ", Access: "w", Length: 8}},
		{"w w@libc.so.6:environ@GLIBC_2.2.5+8:0x8", Watch, Place{Module: "libc.so.6", Symbol: "environ", Version: "GLIBC_2.2.5", Offset: 8, Access: "w", Length: 8}},
		{"w w@0x401000:2", Watch, Place{HasAddr: true, Addr: 0x401000, Access: "w", Length: 2}},
		{"w w@0x401008-8", Watch, Place{HasAddr: true, Addr: 0x401000, Access: "w", Length: 4}},
		{"w @ns::counter:4", Watch, Place{Symbol: "ns::counter", Access: "rw", Length: 4}},
		{`w w@"/opt/my app":"a b"-4:4`, Watch, Place{Module: "/opt/my app", Symbol: "a b", Offset: 1<<64 - 4, Access: "w", Length: 4}},
		{`w w@"x-4"`, Watch, Place{Symbol: "x-4", Access: "w", Length: 4}},
		{"-:e w@counter:8", Delete, Place{Symbol: "counter", Access: "w", Length: 8}},
		{"p main.(*T).Method", Probe, Place{Symbol: "main.(*T).Method"}},
		{"p srv:main.(*T).Method-fm+16", Probe, Place{Module: "srv", Symbol: "main.(*T).Method-fm", Offset: 16}},
		{"p net/http.HandlerFunc.ServeHTTP", Probe, Place{Symbol: "net/http.HandlerFunc.ServeHTTP"}},
		{"p /srv/bin/srv:net/http.(*Server).Serve", Probe, Place{Module: "/srv/bin/srv", Symbol: "net/http.(*Server).Serve"}},
		{"p main.Map[go.shape.int]", Probe, Place{Symbol: "main.Map[go.shape.int]"}},
		{"p nginx:ngx_http_*", Probe, Place{Module: "nginx", Symbol: "ngx_http_*"}},
	} {
		s, err := Parse(c.in, Process)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if s.Kind != c.kind || s.Place != c.want {
			t.Errorf("%s\n got %c %+v\nwant %c %+v", c.in, s.Kind, s.Place, c.kind, c.want)
		}
		roundTrip(t, s, Options{})
	}
}

// Every function symbol that real compilers made can be named: bare or, where
// its characters mean something, in quotes; it prints so that it reads back,
// and it is no glob unless it is spelled like one.
func TestRealSymbols(t *testing.T) {
	names := map[string]bool{}
	add := func(file string) {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dyn, _ := f.DynamicSymbols()
		syms, _ := f.Symbols()
		for _, s := range append(dyn, syms...) {
			if s.Name != "" && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
				names[s.Name] = true
			}
		}
	}
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	if gotool, err = filepath.EvalSymlinks(gotool); err != nil {
		t.Fatal(err)
	}
	add(gotool)
	goNames := len(names)
	lib, err := exec.Command("g++", "-print-file-name=libstdc++.so.6").Output()
	if err != nil {
		t.Fatal(err)
	}
	add(strings.TrimSpace(string(lib)))
	mangled := make([]string, 0, len(names))
	for n := range names {
		mangled = append(mangled, n)
	}
	cmd := exec.Command("c++filt")
	cmd.Stdin = strings.NewReader(strings.Join(mangled, "\n"))
	cmd.Stderr = os.Stderr
	plain, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for n := range strings.Lines(string(plain)) {
		names[strings.TrimSpace(n)] = true
	}
	quoted, globs := 0, 0
	for n := range names {
		pl := Place{Module: "app", Symbol: n, Offset: 8}
		inQuotes := strings.HasPrefix(pl.text(), `app:"`)
		s, err := Parse("p "+pl.text(), Process)
		want := pl
		want.Exact = inQuotes && pl.IsGlob()
		switch {
		case err != nil:
			t.Errorf("%s: %v", n, err)
		case s.Place != want:
			t.Errorf("%s: reads back as %+v", n, s.Place)
		}
		if inQuotes {
			quoted++
			if !strings.ContainsAny(n, " =@+-%:\"") {
				t.Errorf("%s: quoted for nothing: %s", n, pl.text())
			}
		}
		if !pl.Match(n) {
			t.Errorf("%s does not match itself", n)
		}
		if !pl.IsGlob() {
			continue
		}
		if !inQuotes {
			globs++
		}
		// In quotes it is just itself.
		s, err = Parse("p app:"+quote(n), Process)
		switch {
		case err != nil:
			t.Errorf("%s: %v", n, err)
		case s.Place.Symbol != n || s.Place.IsGlob() || s.Place.Match(n+"x"):
			t.Errorf("%s: still a glob in quotes", n)
		default:
			roundTrip(t, s, Options{})
		}
	}
	t.Logf("%d symbols, %d of Go; %d quoted, %d read as globs", len(names), goNames, quoted, globs)
	if goNames < 1000 || len(names)-goNames < 1000 {
		t.Error("too few symbols to tell")
	}
	// Left are Go's generated comparisons of arrays, "type:.eq.[16]string".
	if globs*100 > len(names) {
		t.Error("many real names are taken for globs where they stand without quotes")
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern string
		glob    bool
		yes, no []string
	}{
		{"malloc", false, []string{"malloc"}, []string{"malloc_", "xmalloc", ""}},
		{"ngx_*", true, []string{"ngx_", "ngx_http"}, []string{"ngx", "xngx_"}},
		{"*", true, []string{"", "a"}, nil},
		{"*_init", true, []string{"_init", "a_init", "a_init_init"}, []string{"a_init_"}},
		{"a*b*c", true, []string{"abc", "a_b_bc", "abbcc"}, []string{"ab", "acb", "abcd"}},
		{"a**b", true, []string{"ab", "axb"}, []string{"a"}},
		{"f?o", true, []string{"foo", "f.o"}, []string{"fo", "fooo"}},
		{"f[a-cx]", true, []string{"fa", "fc", "fx"}, []string{"fd", "f", "f-", "fab"}},
		{"f[!a-c]", true, []string{"fd", "f!"}, []string{"fa", "f"}},
		{"f[^a]", true, []string{"fb"}, []string{"fa"}},
		{"f[-a]", true, []string{"f-", "fa"}, []string{"fb"}},
		{"f[", false, []string{"f["}, []string{"f"}},
		{"f[]", false, []string{"f[]"}, []string{"f"}},
		{"main.(*T).Method", false, []string{"main.(*T).Method"}, []string{"main.(T).Method"}},
		{"main.(*T).*", true, []string{"main.(*T).Method"}, []string{"main.(T).Method", "main.(*TT).Method"}},
		{"main.Map[...]", false, []string{"main.Map[...]"}, []string{"main.Map."}},
		{"main.Map[go.shape.int]*", true, []string{"main.Map[go.shape.int].func1"}, []string{"main.Map."}},
		{"f(char*, int [4])", false, []string{"f(char*, int [4])"}, []string{"f(charx, int [4])", "f(char*, int 4)"}},
		{"f(*)", true, []string{"f(int)", "f()"}, []string{"f"}},
		{"vec<*>::push", true, []string{"vec<int>::push"}, []string{"vec::push"}},
		{"drop<[u8]>", false, []string{"drop<[u8]>"}, []string{"drop<u>"}},
		{"vec<char*>::*", true, []string{"vec<char*>::at"}, []string{"vec<charx>::at"}},
		{"N::operator*", false, []string{"N::operator*"}, []string{"N::operator+"}},
		{"N::operator?*", true, []string{"N::operator+", "N::operator->*"}, []string{"N::operator"}},
		{"N::operator<*", true, []string{"N::operator<int"}, []string{"N::operator>"}},
		{"a->*", true, []string{"a->x"}, []string{"a"}},
		{"myoperator*", true, []string{"myoperators"}, nil},
	} {
		pl := Place{Symbol: c.pattern}
		if pl.IsGlob() != c.glob {
			t.Errorf("%s: glob %t", c.pattern, !c.glob)
		}
		for _, name := range c.yes {
			if !pl.Match(name) {
				t.Errorf("%s does not match %q", c.pattern, name)
			}
		}
		for _, name := range c.no {
			if pl.Match(name) {
				t.Errorf("%s matches %q", c.pattern, name)
			}
		}
	}
}
