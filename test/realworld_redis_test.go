package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
)

// redisServer is a server of our own on a socket in a folder of its own.
type redisServer struct {
	*testprog.Proc
	socket string
}

func startRedis(t testing.TB, settings ...string) redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	testprog.Need(t, fmt.Sprintf("redis-server: %v", err), err == nil)
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	cmd.Args = append(cmd.Args, settings...)
	cmd.Env = []string{"LANG=C"}
	r := redisServer{testprog.StartCmd(t, cmd), socket}
	testprog.UntilNil(t, "redis-server listens", r.Pid, func() error {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err
	})
	return r
}

// redisClient speaks RESP, the server's protocol.
type redisClient struct {
	net.Conn
	in *bufio.Reader
}

func (r redisServer) connect(t testing.TB) *redisClient {
	t.Helper()
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &redisClient{c, bufio.NewReader(c)}
}

// do sends one command and answers the reply as text, an error of the server
// included: it is an answer like any other.
func (c *redisClient) do(args ...string) (string, error) {
	c.SetDeadline(time.Now().Add(time.Minute))
	if err := c.send(args...); err != nil {
		return "", err
	}
	return c.reply()
}

func (c *redisClient) send(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(c, b.String())
	return err
}

func (c *redisClient) reply() (string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("an empty reply")
	}
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if n < 0 {
			return "nil", nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.in, b)
		return strconv.Quote(strings.TrimSuffix(string(b), "\r\n")), err
	case '*':
		var parts []string
		for range n {
			part, err := c.reply()
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return "[" + strings.Join(parts, " ") + "]", nil
	}
	return line, nil
}

// redisCommands are as many of the server's ways as have the same answer every
// time. @ stands for a prefix that keeps clients apart.
const redisCommands = `
PING hello
SET @s some text
GET @s
APPEND @s more
STRLEN @s
GETRANGE @s 2 5
SETRANGE @s 3 XYZ
SETBIT @b 1000 1
BITCOUNT @b
INCR @n
INCRBYFLOAT @f 3.25
INCRBYFLOAT @f 1e-3
INCR @s
EXPIRE @s 1000
PERSIST @s
TYPE @s
RPUSH @l 5 3 1 4 2 10 7
SORT @l
SORT @l DESC LIMIT 1 3
LRANGE @l 0 -1
LINSERT @l BEFORE 4 99
LPOP @l 2
LREM @l 0 10
HSET @h a 1 b 2 c 3
HINCRBY @h a 5
HINCRBYFLOAT @h b 0.5
HGETALL @h
SADD @t x y z 1 2 3
SISMEMBER @t y
SADD @u 1 2 9
SINTER @t @u
SCARD @t
ZADD @z 1.5 one 2.5 two -3 three inf big
ZRANGE @z 0 -1 WITHSCORES
ZRANGEBYSCORE @z -inf 2 WITHSCORES
ZINCRBY @z 0.1 one
ZADD @z notanumber x
GEOADD @g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEODIST @g Palermo Catania km
PFADD @p a b c d e f g
PFCOUNT @p
XADD @x 1-1 field value
XADD @x 2-1 field other
XRANGE @x - +
EVAL return{redis.call('incrby',KEYS[1],ARGV[1]),string.format('%.3f|%5s|%x',3.14159,'ab',255)} 1 @n 10
EVAL local~t={}~for~i=1,50~do~t[i]=math.sin(i)*100~end~table.sort(t)~return~cjson.encode(t) 0
EVAL return~tostring(os.clock()>=0)..string.rep('x',20):gsub('x','yz') 0
EVAL error('thrown') 0
EVAL return~pcall(error,'caught') 0
OBJECT ENCODING @l
DUMP @n
COPY @l @m
RENAME @m @o
SCAN 0 MATCH @nothing COUNT 1000
NOSUCHCOMMAND
CONFIG GET maxmemory
CONFIG SET maxmemory 0
CLIENT SETNAME me
CLIENT GETNAME
WAIT 0 1
MULTI
SET @q 1
INCR @q
EXEC
SUBSTR @s 0 3
`

// work runs all commands, and removes what they made.
func (c *redisClient) work(prefix string) ([]string, error) {
	var answers []string
	for line := range strings.Lines(redisCommands) {
		args := strings.Fields(strings.ReplaceAll(line, "@", prefix+":"))
		if len(args) == 0 {
			continue
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		a, err := c.do(args...)
		if err != nil {
			return answers, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		answers = append(answers, args[0]+" "+a)
	}
	for _, k := range "sbnflhtuzgpxmoq" {
		if _, err := c.do("DEL", prefix+":"+string(k)); err != nil {
			return answers, err
		}
	}
	return answers, nil
}

func (c *redisClient) mustWork(t testing.TB, prefix string) []string {
	t.Helper()
	answers, err := c.work(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// saves lets the server fork a child that writes its data to disk.
func (c *redisClient) saves(t testing.TB) {
	t.Helper()
	if a, err := c.do("BGSAVE"); err != nil || a != "+Background saving started" {
		t.Fatalf("BGSAVE: %q, %v", a, err)
	}
	var info string
	testprog.Until(t, "the forked child ends", testprog.Here, func() bool {
		var err error
		if info, err = c.do("INFO", "persistence"); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "rdb_bgsave_in_progress:0")
	})
	if !strings.Contains(info, "rdb_last_bgsave_status:ok") {
		t.Errorf("the forked child failed: %s", info)
	}
}

func TestRedisUnderProbesOnAllOfLibc(t *testing.T) {
	r := startRedis(t)
	c := r.connect(t)
	want := c.mustWork(t, "k")
	if again := c.mustWork(t, "k"); !slices.Equal(again, want) {
		t.Fatal("two rounds differ")
	}
	before := remainsOf(t, r.Pid)
	s := attach(t, r.Pid, nil)
	ps := registerEntries(t, s, entryProbes(t, entries(t, r.Pid, mappedFile(t, r.Pid, "libc.so.6"))))
	for range 3 {
		sameLines(t, c.mustWork(t, "k"), want)
	}
	c.saves(t)
	sameLines(t, r.connect(t).mustWork(t, "k"), want)
	n, hits := reached(ps)
	t.Logf("%d of them were reached, %d hits", n, hits)
	if n < 50 {
		t.Errorf("only %d functions were reached", n)
	}
	detach(t, s)
	before.check(t)
	sameLines(t, c.mustWork(t, "k"), want)
}

// The server's own functions, and return probes on those of libc, at once.
func TestRedisUnderProbesOnItself(t *testing.T) {
	r := startRedis(t)
	c := r.connect(t)
	want := c.mustWork(t, "k")
	before := remainsOf(t, r.Pid)
	s := attach(t, r.Pid, nil)
	ps := registerEntries(t, s, entryProbes(t, entries(t, r.Pid, programOf(t, r.Pid))))
	libc := entries(t, r.Pid, mappedFile(t, r.Pid, "libc.so.6"))
	rps := registerReturns(t, s, returnProbes(t, libc))
	sameLines(t, c.mustWork(t, "k"), want)
	c.saves(t)
	n, hits := reached(ps)
	t.Logf("%d of the server's %d functions were reached, %d hits", n, len(ps), hits)
	if n < 500 {
		t.Errorf("only %d functions were reached", n)
	}
	accounted(t, rps, libc, "__longjmp_chk", "") // Lua throws so; the second is static
	detach(t, s)
	before.check(t)
	sameLines(t, c.mustWork(t, "k"), want)
}

// A server that is never idle while sessions come and go: clients see nothing
// but answers, and those that they would get otherwise.
func TestSessionsComeAndGoOnABusyRedis(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	r := startRedis(t)
	want := r.connect(t).mustWork(t, "key")
	before := remainsOf(t, r.Pid)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var served [3]int
	for i := range served {
		c := r.connect(t)
		prefix := fmt.Sprintf("ke%d", i) // as long as the one of want, for what counts bytes
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := c.work(prefix)
				if err != nil {
					t.Error(err)
					return
				}
				served[i]++
				for j, a := range got {
					if strings.ReplaceAll(a, prefix, "key") != want[j] {
						t.Errorf("answer %q, without probes %q", a, want[j])
						return
					}
				}
			}
		})
	}
	defer func() {
		close(stop)
		clients.Wait()
		t.Logf("%d rounds of sessions while clients worked %v times through their list", rounds, served)
		if !t.Failed() {
			before.check(t)
		}
	}()

	funcs := entries(t, r.Pid, mappedFile(t, r.Pid, "libc.so.6"))
	var stopped, longest time.Duration
	var hits uint64
	for round := range rounds {
		s := attach(t, r.Pid, nil)
		// Other functions each time, by entry and by return.
		var ps []*kprobe.Kprobe
		var rps []*kprobe.Kretprobe
		for i := range 200 {
			fn := funcs[(round*37+i*len(funcs)/200)%len(funcs):][:1]
			if i%4 == 0 {
				rps = append(rps, returnProbes(t, fn)...)
			} else {
				ps = append(ps, entryProbes(t, fn)...)
			}
		}
		for _, name := range []string{"memcpy", "read", "write", "epoll_wait", "memchr", "clock_gettime"} {
			ps = append(ps, &kprobe.Kprobe{SymbolName: "libc.so.6:" + name})
		}
		rps = append(rps, &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:read"}})
		ps = registerQuietly(t, s, ps)
		rps = slices.DeleteFunc(rps, func(rp *kprobe.Kretprobe) bool { return s.RegisterKretprobe(rp) != nil })
		longest = max(longest, s.LastStop())
		stopped += s.LastStop()
		var n uint64
		testprog.Until(t, "probes are hit", r.Pid, func() bool { _, n = reached(ps); return n > 0 })
		hits += n
		if round%2 == 0 { // else Close does it
			if err := s.UnregisterKretprobes(rps); err != nil {
				t.Error(err)
			}
			if err := s.UnregisterKprobes(ps); err != nil {
				t.Error(err)
			}
		}
		detach(t, s)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d hits; the last registrations stopped the server for %v each, at most %v", hits, stopped/time.Duration(rounds), longest)
	if hits == 0 {
		t.Error("no probe was hit")
	}
}

// registerQuietly registers what can be probed, in one batch.
func registerQuietly(t testing.TB, s *kprobe.Session, ps []*kprobe.Kprobe) []*kprobe.Kprobe {
	t.Helper()
	if err := s.RegisterKprobes(ps); err == nil {
		return ps
	}
	return registerEntries(t, s, ps)
}

// An indirect function of libc may be bound to the kernel's own code.
func TestIndirectFunctionOfTheKernel(t *testing.T) {
	r := startRedis(t)
	s := attach(t, r.Pid, nil)
	err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "libc.so.6:gettimeofday"})
	errno(t, err, syscall.EINVAL)
	if err == nil || !strings.Contains(err.Error(), "[vdso]") {
		t.Errorf("the error does not tell whose it is: %v", err)
	}
}
