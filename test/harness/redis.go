package harness

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/internal/testprog"
)

// Redis is a server of our own on a socket in a folder of its own.
type Redis struct {
	*testprog.Proc
	socket string
}

// StartRedis starts a server with these settings and waits until it listens.
func StartRedis(t testing.TB, settings ...string) Redis {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	testprog.Need(t, fmt.Sprintf("redis-server: %v", err), err == nil)
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	cmd.Args = append(cmd.Args, settings...)
	cmd.Env = []string{"LANG=C"}
	r := Redis{testprog.StartCmd(t, cmd), socket}
	testprog.UntilNil(t, "redis-server listens", r.Pid, func() error {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err
	})
	return r
}

// RedisClient speaks RESP, the server's protocol.
type RedisClient struct {
	net.Conn
	in *bufio.Reader
}

// Connect makes a client.
func (r Redis) Connect(t testing.TB) *RedisClient {
	t.Helper()
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &RedisClient{c, bufio.NewReader(c)}
}

// Do sends one command and answers the reply as text, an error of the server
// included: it is an answer like any other.
func (c *RedisClient) Do(args ...string) (string, error) {
	c.SetDeadline(time.Now().Add(time.Minute))
	if err := c.send(args...); err != nil {
		return "", err
	}
	return c.reply()
}

func (c *RedisClient) send(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(c, b.String())
	return err
}

func (c *RedisClient) reply() (string, error) {
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

// Work runs all commands, and removes what they made.
func (c *RedisClient) Work(prefix string) ([]string, error) {
	var answers []string
	for line := range strings.Lines(redisCommands) {
		args := strings.Fields(strings.ReplaceAll(line, "@", prefix+":"))
		if len(args) == 0 {
			continue
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		a, err := c.Do(args...)
		if err != nil {
			return answers, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		answers = append(answers, args[0]+" "+a)
	}
	for _, k := range "sbnflhtuzgpxmoq" {
		if _, err := c.Do("DEL", prefix+":"+string(k)); err != nil {
			return answers, err
		}
	}
	return answers, nil
}

// MustWork is Work that ends the test at an error.
func (c *RedisClient) MustWork(t testing.TB, prefix string) []string {
	t.Helper()
	answers, err := c.Work(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// Saves lets the server fork a child that writes its data to disk.
func (c *RedisClient) Saves(t testing.TB) {
	t.Helper()
	if a, err := c.Do("BGSAVE"); err != nil || a != "+Background saving started" {
		t.Fatalf("BGSAVE: %q, %v", a, err)
	}
	var info string
	testprog.Until(t, "the forked child ends", testprog.Here, func() bool {
		var err error
		if info, err = c.Do("INFO", "persistence"); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, "rdb_bgsave_in_progress:0")
	})
	if !strings.Contains(info, "rdb_last_bgsave_status:ok") {
		t.Errorf("the forked child failed: %s", info)
	}
}

// Calls is the server's own count of commands.
func (c *RedisClient) Calls(t testing.TB) uint64 {
	t.Helper()
	info, err := c.Do("INFO", "stats")
	OK(t, err)
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	digits, _, _ := strings.Cut(rest, `\r`)
	n, err := strconv.ParseUint(digits, 10, 64)
	OK(t, err)
	return n
}

// Benchmark runs all tests of redis-benchmark, n requests each, and answers what it
// prints: requests a second.
func (r Redis) Benchmark(t testing.TB, n int) string {
	t.Helper()
	path, err := exec.LookPath("redis-benchmark")
	testprog.Need(t, fmt.Sprintf("redis-benchmark: %v", err), err == nil)
	out, err := exec.Command(path, "-s", r.socket, "-q", "--csv", "-r", "1000", "-n", strconv.Itoa(n)).CombinedOutput()
	if err != nil || strings.Contains(string(out), "rror") {
		t.Fatalf("redis-benchmark: %v\n%s", err, out)
	}
	return string(out)
}
