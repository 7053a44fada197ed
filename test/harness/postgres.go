package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// Postgres is a cluster of our own, and a client that talks to one process of it.
type Postgres struct {
	Server  *testprog.Proc
	Client  *testprog.Proc
	Backend int // the process that serves the client
}

// FindPostgres is the folder of a server's programs, or nothing. The set-up installs none, since it is large.
func FindPostgres() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// StartPostgres starts a server, which refuses to be root's, and a client.
func StartPostgres(t testing.TB) Postgres {
	t.Helper()
	bin := FindPostgres()
	if bin == "" {
		t.Skip(testprog.NotHere + "a postgres, which is not installed for tests")
	}
	dir, err := os.MkdirTemp("", "pg") // a socket's name is short, and the server's user reads it
	OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	OK(t, os.Mkdir(data, 0o700))
	if os.Getuid() == 0 {
		OK(t, os.Chmod(dir, 0o755))
		OK(t, os.Chown(dir, testprog.Nobody, testprog.Nobody))
		OK(t, os.Chown(data, testprog.Nobody, testprog.Nobody))
	}
	env := []string{"LANG=C", "PATH=/usr/bin:/bin", "HOME=" + dir}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := testprog.AsUser(t, filepath.Join(bin, name), args...)
		cmd.Env = env
		return cmd
	}
	if out, err := run("initdb", "--no-sync", "-A", "trust", "-U", "me", "-D", data).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := testprog.StartCmd(t, run("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"))
	client := run("psql", "-XqAt", "-h", dir, "-U", "me", "postgres")
	testprog.UntilNil(t, "postgres answers", server.Pid, func() error {
		cmd := run("psql", append(client.Args[1:], "-c", "select 1")...)
		return cmd.Run()
	})
	p := Postgres{Server: server, Client: testprog.StartCmd(t, client)}
	OK(t, func() (err error) { p.Backend, err = strconv.Atoi(p.Ask("select pg_backend_pid();")[0]); return }())
	p.Ask(postgresTables)
	return p
}

// Ask has the client ask something, and answers what it prints.
func (p Postgres) Ask(query string) []string {
	p.Client.Send("%s\n\\echo done", query)
	var out []string
	for line := p.Client.Line(); line != "done"; line = p.Client.Line() {
		out = append(out, line)
	}
	return out
}

const postgresTables = `
create table t (id int primary key, name text, at timestamp, j jsonb);
insert into t select i, 'n' || i % 17, timestamp '2024-01-01' + i * interval '1 hour', jsonb_build_object('k', i, 'v', repeat('x', i % 50))
  from generate_series(1, 500) i;
create index on t (name);
create function f(n int) returns int language plpgsql as $$ begin return n / 0; exception when division_by_zero then return n * 3; end $$;`

// postgresWork has the same answer every time. It sorts and joins, writes and takes back, and is wrong: errors are
// thrown by siglongjmp there.
const postgresWork = `
select name, count(*), sum(id), max(at) from t group by name order by name limit 5;
select count(*) from t a join t b on a.name = b.name where a.id < b.id;
select md5(string_agg(j::text, ',' order by id)) from t;
begin; update t set name = upper(name) where id % 3 = 0; select count(*) from t where name ~ '^N'; rollback;
begin; delete from t; select count(*) from t; savepoint s; select 1/0; rollback to s; select count(*) from t; rollback;
select sum(f(i)) from generate_series(1, 20) i;
select regexp_replace('the quick brown fox', '(\w)(\w*)', '\2\1', 'g'), to_char(12345.678, 'FM999,999.00'), sqrt(2::numeric), exp(1.5);
with recursive r(n) as (select 1 union all select n + 1 from r where n < 100) select sum(n) from r;
select * from nothere;
`

// PostgresQueries counts the queries that Work sends.
var PostgresQueries = uint64(strings.Count(postgresWork, ";"))

// Work asks for all of it.
func (p Postgres) Work() []string { return p.Ask(strings.TrimSpace(postgresWork)) }
