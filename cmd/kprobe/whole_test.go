package main

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// wholes are programs with values that have parts, definitions that ask for them, and what is in them.
var wholes = []struct {
	cc   [][]string
	file string
	defs []string
	want map[string][]string
}{
	{
		cc:   [][]string{{"g++", "-std=c++17", "-O0", "-g"}, {"g++", "-std=c++17", "-O2", "-gdwarf-4"}},
		file: "whole.cc",
		defs: []string{"p:see see d n *w", "p:point point i=*i s t", "p:wild wild v t"},
		want: map[string][]string{
			"see": {`d={d=1.25,f=-0.5,b=1,bits=5,u={i=1094861636,c="DCBA"},s="deep",_vptr.Base=P,base=5} ` +
				`n={self=0x0,x={in={down={...}}},arr={{e=0},{e=1},{e=2},{e=3},{e=4},...},many={{e=0},{e=1},{e=2},{e=3},{e=4},...},` +
				`rows={{1,2},{},{3}},grid={{0,0,0},{0,0,6}},words={"a","","long enough that it is not kept inside"}} ` +
				`w={m={0},a=0,b=0,c=0,d=0,e=0,f=0,g=0,h=0,i=0,j=0,k=0,l=0,n=0,o=0,p=0,...}`},
			"point": {`i={42} s={"shared"} t={x=8,name="eight"}`, `i=nil s=nil t=nil`},
			"wild":  {`v=(fault) t={x=(fault),name=(fault)}`},
		},
	},
	{
		cc:   [][]string{{"g++", "-std=c++17", "-O0", "-g"}, {"g++", "-std=c++17", "-O2", "-g"}, {"clang++", "-std=c++17", "-O1", "-g"}},
		file: "nodes.cc",
		defs: []string{"p:trees trees m s mm vs", "p:chains chains l p u us", "p:maybes maybes o os oi t f", "p:wild wild m l u"},
		want: map[string][]string{
			"trees": {`m={} s={} mm={} vs={}`,
				`m={{first=0,second={a=0,s="v0"}},{first=1,second={a=10,s="v1"}},{first=2,second={a=20,s="v2"}},{first=3,second={a=30,s="v3"}},{first=4,second={a=40,s="v4"}}} ` +
					`s={"a","b","c"} mm={{first=1,second=2},{first=1,second=1}} vs={{1,2,3},{},{5}}`},
			"chains": {`l={} p={} u={} us={}`, `l={{a=4,s="l"},{a=3,s="l"},{a=2,s="l"},{a=1,s="l"},{a=0,s="l"}} p={{4},nil} u={{first="k",second={1,2}}} us={7}`},
			"maybes": {`o=nil os=nil oi=nil t={1,{a=2,s="t"},"tt"} f=EXEC`, `o={a=8,s="o"} os={"opt"} oi={6} t={1,{a=2,s="t"},"tt"} f=READ|EXEC`},
			"wild": {`m={(fault),(fault),(fault),{first=(fault),second={a=(fault),s=(fault)}},(fault),(fault),(fault),...} l={(fault),(fault),(fault),(fault),(fault),...} ` +
				`u={` + strings.Repeat(`{first=(fault),second={a=(fault),s=(fault)}},`, 5) + `...}`},
		},
	},
	{
		cc:   [][]string{{"go", "build"}, {"go", "build", "-gcflags=-N -l"}},
		file: "whole.go",
		defs: []string{"p:show main.show it=*it ss m ch err", "p:wild main.wild it->tags it->m it->ch it->pts it->name", "p:boxes main.boxes q args"},
		want: map[string][]string{
			"show": {
				`it={name="one",tags={"x","","zz"},in={a=1,b=2,f=2.5},m={len=2},ch={len=1,cap=3},err=*errors.errorString{"bad thing"},any=int{5},grid={{1,2},{3,4}},pts={{a=1,b=1,f=1},{a=2,b=2,f=2}}} ` +
					`ss={} m=nil ch={len=0,cap=4} err=nil`,
				`it={name="one",tags={"x","","zz"},in={a=1,b=2,f=2.5},m={len=2},ch={len=1,cap=3},err=*errors.errorString{"bad thing"},any=int{5},grid={{1,2},{3,4}},pts={{a=1,b=1,f=1},{a=2,b=2,f=2}}} ` +
					`ss={"p","q","r","s","t",...} m={len=1} ch=nil err=*fmt.wrapError{"wrapped: in"}`,
			},
			"boxes": {
				`q="numbers" args={int{1099511627776},int64{-2},uint64{9223372036854775808},int32{120},float64{2.5}}`,
				`q="texts" args={string{""},string{"abc"},bool{1},time.Duration{1000000000},*errors.errorString{"bad"},...}`,
				`q="others" args={nil,[]uint8,*main.inner,*fmt.wrapError{"wrapped: file already closed"},main.inner}`,
				`q="wild" args={int{(fault)},16}`,
			},
			"wild": {`tags={(fault),(fault),(fault),(fault),(fault),...} m={len=(fault)} ch={len=(fault),cap=(fault)} ` +
				`pts={{a=(fault),b=(fault),f=(fault)},{a=(fault),b=(fault),f=(fault)},{a=(fault),b=(fault),f=(fault)},{a=(fault),b=(fault),f=(fault)},{a=(fault),b=(fault),f=(fault)},...} name=(fault)`},
		},
	},
	{
		cc:   [][]string{{"rustc", "-g"}, {"rustc", "-g", "-O"}},
		file: "whole.rs",
		defs: []string{"p:see see a=*a b=*b s=*s d=*d v=*v w", "p:also also rc=*rc arc=*arc res=*res t=*t n=*n o=*o"},
		want: map[string][]string{
			"see": {
				`a=Some{{x=1,y=2.5}} b=Some{"txt"} s=Circle{r=1.5} d=Up v={"a","bb"} w={{x=1,y=2.5},{x=3,y=4}}`,
				`a=None b=None s=Rect{3,4} d=Down v={} w={}`,
				`a=None b=None s=Empty d=Down v={} w={}`,
			},
			"also": {
				`rc={x=1,y=2.5} arc={"counted"} res=Ok{5} t={7,"t"} n=Some{4} o=Some{{{x=1,y=2.5}}}`,
				`rc={x=1,y=2.5} arc={""} res=Err{"no"} t={7,"t"} n=None o=None`,
			},
		},
	},
}

// TestWholeValues holds that values with parts are printed with these, bounded in depth and width, by handlers and by
// programs in the target; of what is not there nothing is read, and memory that is none does no harm.
func TestWholeValues(t *testing.T) {
	for i, w := range wholes {
		if testing.Short() {
			w.cc = w.cc[:1]
		}
		for _, cc := range w.cc {
			t.Run(strings.Join(cc, " "), func(t *testing.T) {
				testprog.Need(t, cc[0], have(cc[0]))
				path := compiledSource(t, append(slices.Clone(cc), w.file)...)
				for _, how := range engines(i) {
					r := run(t, append(append([]string{"trace", "--no-summary"}, how...), append(slices.Clone(w.defs), "--", path)...)...)
					for event, want := range w.want {
						got := values(r.Lines, event)
						for i := range got {
							got[i] = pointer.ReplaceAllString(got[i], "=P")
						}
						if cc[0] == "go" {
							got = slices.Compact(got) // a function that its thread is to be taken from at its beginning begins once more
						}
						if !slices.Equal(got, want) {
							t.Errorf("%v %s: got\n%s\nwant\n%s\n%v", how, event, strings.Join(got, "\n"), strings.Join(want, "\n"), r.Stderr)
						}
					}
				}
			})
		}
	}
}

// TestWholeJSON holds that such values are objects in JSON, and that conditions ask what there is.
func TestWholeJSON(t *testing.T) {
	path := compiledSource(t, "go", "build", "whole.go")
	r := run(t, "trace", "--no-summary", "--json", "p:ev main.show in=it->in tags=it->tags ss m err if err != 0", "--", path)
	const want = `"args":{"in":{"a":1,"b":2,"f":2.5},"tags":["x","","zz"],"ss":{"first":["p","q","r","s","t"],"of":7},"m":{"len":1},"err":{"*fmt.wrapError":"wrapped: in"}}`
	if len(r.Lines) != 1 || !strings.Contains(r.Lines[0], want) {
		t.Errorf("%v\nwant %s", r, want)
	}
	r = run(t, "trace", "--no-summary", "--json", "p:ev main.show err ch if m == 0", "--", path)
	if len(r.Lines) != 1 || !strings.Contains(r.Lines[0], `"args":{"err":"nil","ch":{"len":0,"cap":4}}`) {
		t.Errorf("%v", r)
	}
}

// TestPlanProgram holds that plan tells of a program that is started for it, which does nothing.
func TestPlanProgram(t *testing.T) {
	path := compiledSource(t, "gcc", "-O1", "-g", "calls.c")
	r := run(t, "plan", "p calls:moved *n", "r calls:leaf", "--", path)
	if !r.OK() || len(r.Lines) != 2 || !strings.Contains(r.Lines[0], "; n.at.x is +8(%di):s32") || !strings.HasPrefix(r.Lines[1], "calls:leaf") {
		t.Errorf("%v", r)
	}
	refused(t, run(t, "plan", "p calls:moved none", "--", path), "there is no variable")
}

// TestDurationOfProgram holds that trace and stat wait for a program that runs on after --duration, and have its status.
func TestDurationOfProgram(t *testing.T) {
	for _, verb := range []string{"trace", "stat"} {
		r := run(t, verb, "-d", "100ms", "p "+inLibc(t, "getenv"), "--", "sh", "-c", "sleep 1; echo still here; exit 3")
		if r.Status.ExitStatus() != 3 || !slices.Contains(r.Lines, "still here") {
			t.Errorf("%s: %v", verb, r)
		}
	}
}

// TestDebuginfod holds that debug data which is not on the machine comes from a server that the environment names.
func TestDebuginfod(t *testing.T) {
	path := compiledSource(t, "gcc", "-O1", "-g", "-Wl,--build-id", "calls.c")
	debug := filepath.Join(t.TempDir(), "debug")
	for _, c := range [][]string{{"objcopy", "--only-keep-debug", path, debug}, {"strip", "-g", path}} {
		if b, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, b)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, debug) }))
	defer s.Close()
	cmd := tool(t, "trace", "--no-summary", "p:ev calls:leaf n", "--", path)
	cmd.Env = append(cmd.Environ(), "DEBUGINFOD_URLS=", "DEBUGINFOD_CACHE_PATH="+t.TempDir())
	refused(t, testprog.StartCmd(t, cmd).Result(), "it has no debug data")
	cmd = tool(t, "trace", "--no-summary", "p:ev calls:leaf n", "--", path)
	cmd.Env = append(cmd.Environ(), "DEBUGINFOD_URLS="+s.URL, "DEBUGINFOD_CACHE_PATH="+t.TempDir())
	if r := testprog.StartCmd(t, cmd).Result(); !slices.Equal(values(r.Lines, "ev"), []string{"n=0", "n=1", "n=0", "n=2", "n=0", "n=3"}) {
		t.Errorf("%v", r)
	}
}
