// Package cases reads and runs runtime cases in the form that bpftrace's own suite has
// them in: a script or a command, the programs that run beside it, and what it must print.
//
// A case is some lines, an empty one behind it. A line begins with a word: NAME; RUN, a
// command, or PROG, a script; EXPECT and the like; BEFORE and AFTER, programs. A line that
// begins with blanks goes on with the one before it, behind the width of its word.
package cases

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Case is one of a file.
type Case struct {
	File, Name string
	Run        string // a command in which {{BPFTRACE}} stands for the program
	Prog       string // or a script
	Expect     []Expect
	Before     []string // programs that run already
	After      string   // what is run once the probes are there
	Cleanup    string
	Env        []string
	Arch       []string // of the machines that it is for, by their names in uname; empty: all
	Requires   []string // commands that must succeed
	Timeout    time.Duration
	WillFail   bool
	Status     int // that it must end with; -1: it does not say
}

// Expect is something that the output must have, or must not.
type Expect struct {
	Kind Kind
	Text string
	Not  bool
}

// Kind is how a text is looked for.
type Kind string

// The kinds of expectations.
const (
	Part  Kind = "part"  // the text is in the output
	Regex Kind = "regex" // it matches a part, line by line
	File  Kind = "file"  // the file's text is in the output
	JSON  Kind = "json"  // the output's lines are the values that the file's lines are
)

// usual is how long a case has that does not say.
const usual = 5 * time.Second

// Read reads the cases of a file. Errors name the line.
func Read(name string, r io.Reader) (all []*Case, err error) {
	var c *Case
	word := ""
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case strings.TrimSpace(line) == "":
			c, word = nil, ""
			continue
		case c == nil:
			c = &Case{File: filepath.Base(name), Timeout: usual, Status: -1}
			all = append(all, c)
		}
		if word != "" && len(line) > len(word) && strings.TrimSpace(line[:len(word)+1]) == "" {
			c.goOn(word, line[len(word)+1:])
			continue
		}
		var rest string
		word, rest, _ = strings.Cut(line, " ")
		if err := c.field(word, strings.TrimSpace(rest)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	for _, c := range all {
		if c.Name == "" || (c.Run == "") == (c.Prog == "") {
			return nil, fmt.Errorf("%s: case %q: a case has a NAME, and either RUN or PROG", name, c.Name)
		}
	}
	return all, lines.Err()
}

// goOn adds a line to the field before it.
func (c *Case) goOn(word, line string) {
	switch {
	case word == "PROG":
		c.Prog += "\n" + line
	case strings.HasPrefix(word, "EXPECT") && len(c.Expect) > 0:
		c.Expect[len(c.Expect)-1].Text += "\n" + line
	}
}

func (c *Case) field(word, rest string) (err error) {
	switch word {
	case "NAME":
		c.Name = rest
	case "RUN":
		c.Run = rest
	case "PROG":
		c.Prog = rest
	case "EXPECT":
		c.Expect = append(c.Expect, Expect{Part, rest, false})
	case "EXPECT_NONE":
		c.Expect = append(c.Expect, Expect{Part, rest, true})
	case "EXPECT_REGEX":
		c.Expect = append(c.Expect, Expect{Regex, rest, false})
	case "EXPECT_REGEX_NONE":
		c.Expect = append(c.Expect, Expect{Regex, rest, true})
	case "EXPECT_FILE":
		c.Expect = append(c.Expect, Expect{File, rest, false})
	case "EXPECT_JSON":
		c.Expect = append(c.Expect, Expect{JSON, rest, false})
	case "BEFORE":
		c.Before = append(c.Before, rest)
	case "AFTER":
		c.After = rest
	case "CLEANUP":
		c.Cleanup = rest
	case "ENV":
		c.Env = append(c.Env, strings.Fields(rest)...)
	case "ARCH":
		for a := range strings.SplitSeq(rest, "|") {
			c.Arch = append(c.Arch, strings.TrimSpace(a))
		}
	case "REQUIRES":
		c.Requires = append(c.Requires, rest)
	case "TIMEOUT":
		var n int
		n, err = strconv.Atoi(rest)
		c.Timeout = time.Duration(n) * time.Second
	case "WILL_FAIL":
		c.WillFail = true
	case "RETURN_CODE":
		c.Status, err = strconv.Atoi(rest)
	case "REQUIRES_FEATURE", "MIN_KERNEL", "MAX_KERNEL", "NEW_PIDNS", "SKIP_IF_ENV_HAS": // of the system's kernel, which is asked for nothing
	default:
		err = fmt.Errorf("no field %q", word)
	}
	return err
}

// ReadFiles reads the cases of several files; those of a folder are all that are in it and are no scripts.
func ReadFiles(names ...string) (all []*Case, err error) {
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.IsDir() {
			below, err := filepath.Glob(filepath.Join(name, "*"))
			if err != nil {
				return nil, err
			}
			for _, b := range below {
				if st, err := os.Stat(b); err == nil && st.Mode().IsRegular() && filepath.Ext(b) == "" {
					some, err := ReadFiles(b)
					if err != nil {
						return nil, err
					}
					all = append(all, some...)
				}
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		some, err := Read(name, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}
