package harness

import (
	"os"
	"os/exec"
	"testing"

	"kprobe/internal/testprog"
)

// pythonLoop is an interpreter that answers rounds: a line with the name of a
// function and a count runs it, what it prints goes before "done".
const pythonLoop = `
import sys, os, re, json, zlib, hashlib, subprocess, threading, tempfile, math
import struct, time, locale, signal, socket, select, random, io, decimal, collections

def texts(n):
    words = re.findall(r'[a-z]+', 'the quick brown fox jumps over the lazy dog ' * n)
    print(len(words), sorted(set(words)), collections.Counter(words).most_common(3))
    print(re.sub(r'(\w)(\w*)', lambda m: m.group(2) + m.group(1), ' '.join(words[:20])))
    print(json.dumps(json.loads(json.dumps({'k%d' % i: [i, i / 7, None, 'x' * i] for i in range(n)})), sort_keys=True)[-200:])
    print('%.17g %e %a %s' % (math.pi * n, n / 3, ascii('\u00e9'), float('1.1e-300')), repr(0.1 * n), float.fromhex('0x1.8p3'))
    print(' '.join(sorted(os.environ)), os.environ.get('LANG'))

def numbers(n):
    r = random.Random(n)
    print([r.random() for _ in range(3)], r.sample(range(100), 5))
    print(2 ** (n * 10) % 1000007, math.factorial(n) % 1000003, decimal.Decimal(n).sqrt())
    print(math.sin(n), math.exp(-n), math.lgamma(n + 0.5), math.hypot(n, n), math.fsum([0.1] * n))

def bytestrings(n):
    data = bytes(range(256)) * n
    print(zlib.crc32(data), hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest())
    print(zlib.decompress(zlib.compress(data, 9)) == data, struct.pack('<dq', n / 3, n).hex())
    print(data.find(b'\xff\x00\x01'), data.replace(b'\x01\x02', b'-').count(b'-'))

def files(n):
    with tempfile.TemporaryDirectory() as d:
        name = os.path.join(d, 'f')
        with open(name, 'w', encoding='utf-8') as f:
            for i in range(n):
                print(i, 'zeile \u00e4\u00f6\u00fc', file=f)
        with open(name, encoding='utf-8') as f:
            print(sum(len(l) for l in f), os.stat(name).st_size, os.path.realpath(d) == d)
        os.rename(name, name + '2')
        print(sorted(os.listdir(d)), [e.is_file() for e in os.scandir(d)])
        try:
            open(name)
        except OSError as e:
            print(e.errno, e.strerror)

def processes(n):
    for i in range(n):
        p = subprocess.run(['/bin/sh', '-c', 'read x; echo "got $x"; exit 3'], input='line %d\n' % i, capture_output=True, text=True)
        print(p.returncode, p.stdout, p.stderr)
    pid = os.fork()
    if pid == 0:
        os._exit(len(json.dumps(list(range(10)))))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

def threads(n):
    total, lock, some = [0], threading.Lock(), threading.Event()
    def work(k):
        some.wait()
        for i in range(n):
            with lock:
                total[0] += len(json.dumps([k, i]))
    ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in ts: t.start()
    some.set()
    for t in ts: t.join()
    print(total)

def sockets(n):
    a, b = socket.socketpair()
    with a, b:
        for i in range(n):
            a.sendall(b'%d' % i)
            print(select.select([b], [], [], 10)[0] == [b], b.recv(100))
    s = socket.create_server(('127.0.0.1', 0))
    with s, socket.create_connection(s.getsockname()) as c, s.accept()[0] as p:
        c.sendall(b'x' * n)
        print(p.recv(n + 1))
    print(socket.getaddrinfo('127.0.0.1', 80, type=socket.SOCK_STREAM))

def clock(n):
    os.environ['TZ'] = 'Europe/Berlin'
    time.tzset()
    print([time.strftime('%A %d %B %Y %H:%M:%S %Z', time.localtime(i * 86400 * 50)) for i in range(n)])
    print(time.mktime(time.strptime('2024-02-29', '%Y-%m-%d')), locale.setlocale(locale.LC_ALL, 'C.UTF-8'), locale.localeconv())

def signals(n):
    seen = []
    signal.signal(signal.SIGUSR1, lambda s, f: seen.append(s))
    for i in range(n):
        os.kill(os.getpid(), signal.SIGUSR1)
    print(len(seen))
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)

def repeatable(n):
    for f in texts, numbers, bytestrings, clock, signals:
        print(f.__name__)
        f(n)

def allofit(n):
    repeatable(n)
    for f in files, processes, threads, sockets:
        print(f.__name__)
        f(n)

def unblocked(n):
    repeatable(n)
    for f in files, sockets:
        print(f.__name__)
        f(n)

print('ready', flush=True)
for line in sys.stdin:
    name, n = line.split()
    globals()[name](int(n))
    print('done', flush=True)
`

// StartPython runs the distribution's interpreter.
func StartPython(t testing.TB) *testprog.Proc {
	t.Helper()
	const path = "/usr/bin/python3" // not one that PATH has first
	_, err := os.Stat(path)
	testprog.Need(t, "Debian's python3", err == nil)
	return StartPythonWith(t, []string{path})
}

// StartPythonWith runs an interpreter by a command line that may have something
// before it, and what it may need in its environment.
func StartPythonWith(t testing.TB, line []string, env ...string) *testprog.Proc {
	t.Helper()
	cmd := exec.Command(line[0], append(line[1:], "-c", pythonLoop)...)
	cmd.Env = append(env, "PYTHONHASHSEED=0", "LANG=C.UTF-8", "PATH=/usr/bin:/bin", "HOME=/")
	p := testprog.StartCmd(t, cmd)
	p.Expect("ready")
	return p
}
