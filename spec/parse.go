package spec

import (
	"fmt"
	"strings"
	"syscall"
)

// Dialect is whose definitions are read.
type Dialect uint8

const (
	// Process is for a live process: kernel and file offset forms, and places in mapped files by
	// symbol. Types that only a kernel has (%pd, %pD) are refused.
	Process Dialect = iota
	Kprobes         // the kernel's kprobe_events
	Uprobes         // the kernel's uprobe_events
)

// Limits of the kernel's definitions (kprobetrace.txt, uprobetracer.txt). They
// hold in every dialect, unless said otherwise where they are used.
const (
	maxActive  = 4096
	maxName    = 63 // bytes of a group's or event's name
	maxArgs    = 128
	maxArgName = 32   // bytes
	maxBody    = 63   // bytes of an argument behind its name
	maxArray   = 64   // elements
	maxOps     = 15   // steps of a fetch program, without its end
	kernStack  = 2048 // words of a kernel stack on x86-64
)

// longBody replaces maxBody for processes, where one C++ symbol takes more.
const longBody = 1024

// Options tell a parser about the machine. The zero value is for processes on x86-64.
type Options struct {
	Dialect Dialect

	// IsReg tells whether %NAME is a register. nil: the x86-64 kernel's names.
	IsReg func(name string) bool

	// MaxStack is the greatest N of $stackN. 0: 2048 for Kprobes, else no limit.
	MaxStack uint64

	// WordSize is the size in bytes of a value without a type. 0: 8.
	WordSize int

	// Types tells that there is type information: variables by name and $arg*
	// are accepted, for the caller to look up.
	Types bool

	// Source tells that there may be debug data: expressions over the names of the program's
	// source, $arg* and $locals are accepted, for the caller to look up (Process).
	Source bool
}

// Parse reads one definition. A line that is empty or a comment gives nil and
// no error. Every other error is a *SyntaxError.
func Parse(line string, d Dialect) (*Spec, error) { return Options{Dialect: d}.Parse(line) }

// ParseAll reads one definition a line. With an error, which names the line,
// come the definitions of the lines before it: the kernel has them in force.
func ParseAll(text string, d Dialect) ([]*Spec, error) { return Options{Dialect: d}.ParseAll(text) }

// ParseAll is like the function of this name.
func (o Options) ParseAll(text string) ([]*Spec, error) {
	var all []*Spec
	n := 0
	for line := range strings.Lines(text) {
		n++
		s, err := o.Parse(line)
		if err != nil {
			return all, fmt.Errorf("line %d: %w", n, err)
		}
		if s != nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// Parse is like the function of this name.
func (o Options) Parse(line string) (*Spec, error) {
	p := &parser{Options: o, words: split(line, o.Dialect == Process)}
	if len(p.words) == 0 {
		return nil, nil
	}
	texts := make([]string, len(p.words))
	for i, w := range p.words {
		texts[i] = w.text
	}
	p.src.line = strings.Join(texts, " ")
	p.s.src = &p.src
	if err := p.command(); err != nil {
		return nil, err
	}
	return &p.s, nil
}

// word is a piece of the line, and where it begins in the re-joined line.
type word struct {
	text string
	at   int
}

// split cuts a line at blanks and drops the comment. In the kernel's dialects "#" begins a comment
// wherever it stands, and quotes mean nothing. With quotes, blanks between quotes do not cut, and
// "#" counts at the beginning of a word only (Rust has {closure#0}); and blanks between parentheses
// do not cut ("(struct foo *)p").
func split(line string, quotes bool) []word {
	if !quotes {
		line, _, _ = strings.Cut(line, "#")
	}
	var words []word
	at := 0
	for {
		line = strings.TrimLeft(line, blanks)
		if line == "" || line[0] == '#' {
			return words
		}
		n := 0
		for n < len(line) && strings.IndexByte(blanks, line[n]) < 0 {
			if quotes && line[n] == '"' {
				// An opening quote without its partner is a plain character here; a caller that
				// needs it closed complains with the right caret.
				n += strings.IndexByte(line[n+1:], '"') + 1
			}
			if quotes && line[n] == '(' {
				n += max(0, grouped(line[n:])-1)
			}
			n++
		}
		words = append(words, word{line[:n], at})
		at += n + 1
		line = line[n:]
	}
}

const blanks = " \t\n\v\f\r"

// parser reads one line: by recursive descent, and in the kernel's order,
// because of several mistakes the first one found is reported.
type parser struct {
	Options
	words []word
	s     Spec
	src   source
}

func (p *parser) fail(at int, code Code) error {
	return p.failWith(at, code, code.errno())
}

func (p *parser) failWith(at int, code Code, errno syscall.Errno) error {
	return &SyntaxError{Code: code, Offset: at, Line: p.src.line, Errno: errno}
}

// command = delete | define.
func (p *parser) command() error {
	verb := p.words[0].text
	p.s.Kind = Kind(verb[0])
	switch p.s.Kind {
	case Delete:
		return p.delete(verb)
	case Probe, Return:
		return p.define(verb)
	case Watch:
		if p.Dialect == Process {
			return p.define(verb)
		}
	}
	return p.failKind(0, BadCommand)
}

// failKind refuses a line that begins with no kind of probe. For a place alone it says what is
// missing.
func (p *parser) failKind(at int, code Code) error {
	err := &SyntaxError{Code: code, Offset: at, Line: p.src.line, Errno: code.errno()}
	if verb := p.words[0].text; p.Dialect == Process && strings.Contains(verb, ":") && isAlpha(verb[0]) {
		err.Err = fmt.Errorf("a definition begins with its kind: 'p %[1]s' at each hit, 'r %[1]s' at each return", p.src.line)
	}
	return err
}

// delete = "-:" NAME [PLACE {ARG}].
func (p *parser) delete(verb string) error {
	name, ok := strings.CutPrefix(verb, "-:")
	if !ok {
		return p.fail(0, BadCommand)
	}
	if name == "" {
		return p.fail(2, NoEventName)
	}
	// A name that no event can have is not wrong here, it is just not found;
	// but no name at all would mean every one.
	if p.cutName(name, 2) && p.s.Group == "" {
		return p.fail(2, NoGroupName)
	}
	if len(p.words) == 1 {
		return nil
	}
	if err := p.place(p.words[1]); err != nil {
		return err
	}
	p.s.Kind = Delete // whatever the place made of it
	return p.args(p.words[2:])
}

// define = VERB [":" NAME] PLACE {ARG}, or VERB ":" PLACE {ARG} in the dialect
// for processes, where PLACE has a colon or a quote, which no name can have.
func (p *parser) define(verb string) error {
	head, name, named := strings.Cut(verb, ":")
	if err := p.maxActive(head[1:]); err != nil {
		return err
	}
	nameAt := len(head) + 1
	place, args := 1, 2
	if named && p.Dialect == Process && strings.ContainsAny(name, `:"`) {
		p.words[0] = word{name, nameAt}
		place, args, named = 0, 1, false
	}
	if place == len(p.words) {
		return p.fail(len(p.src.line), NoPlace)
	}
	if err := p.place(p.words[place]); err != nil {
		return err
	}
	if named {
		if err := p.name(name, nameAt); err != nil {
			return err
		}
	}
	words, err := p.condition(p.words[args:])
	if err != nil {
		return err
	}
	return p.args(words)
}

// maxActive reads the number between the verb and its colon.
func (p *parser) maxActive(digits string) error {
	switch {
	case digits == "":
		return nil
	case p.s.Kind != Return && !isDigit(digits[0]):
		return p.failKind(1, BadCommand)
	case p.s.Kind != Return, p.Dialect == Uprobes:
		return p.fail(1, BadMaxactType)
	}
	n, ok := parseDigits(digits, 32)
	if !ok || n == 0 {
		return p.failKind(1, BadMaxact)
	}
	if n > maxActive {
		return p.fail(1, MaxactTooBig)
	}
	p.s.MaxActive = int(n)
	return nil
}

// cutName splits [GROUP ("/" | ".")] EVENT and tells whether there is a group.
func (p *parser) cutName(name string, at int) bool {
	sep := strings.IndexByte(name, '/')
	if sep < 0 {
		sep = strings.IndexByte(name, '.')
	}
	p.src.group = at
	p.src.event = at + sep + 1
	if sep < 0 {
		p.s.Event = name
		return false
	}
	p.s.Group, p.s.Event = name[:sep], name[sep+1:]
	return true
}

// name reads and checks a definition's name.
func (p *parser) name(name string, at int) error {
	grouped := p.cutName(name, at)
	if grouped {
		switch {
		case p.s.Group == "":
			return p.fail(p.src.group, NoGroupName)
		case len(p.s.Group) > maxName:
			return p.fail(p.src.group, GroupTooLong)
		case !isWord(p.s.Group, "-") || p.s.Group[0] == '-':
			return p.fail(p.src.group, BadGroupName)
		}
	}
	switch {
	case p.s.Event == "" && grouped: // "GROUP/": the event gets its default name
		return nil
	case p.s.Event == "":
		return p.fail(p.src.event, NoEventName)
	case len(p.s.Event) > maxName:
		return p.fail(p.src.event, EventTooLong)
	case !isIdent(p.s.Event):
		return p.fail(p.src.event, BadEventName)
	}
	return nil
}
