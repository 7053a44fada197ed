package spec

import (
	"fmt"
	"slices"
	"strings"
)

// reservedNames are fields that every event's record has.
var reservedNames = []string{
	"common_type", "common_flags", "common_preempt_count", "common_pid",
	"common_tgid", "__probe_ip", "__probe_ret_ip", "__probe_func",
}

// x86Regs are the register names of the x86-64 kernel's definitions.
var x86Regs = []string{
	"ax", "bx", "cx", "dx", "si", "di", "bp", "sp",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"ip", "flags", "orig_ax", "cs", "ss",
}

func (p *parser) isReg(name string) bool {
	if p.IsReg != nil {
		return p.IsReg(name)
	}
	return slices.Contains(x86Regs, name)
}

// args reads the fetch arguments.
func (p *parser) args(words []word) error {
	if len(words) > maxArgs {
		return p.fail(words[0].at, TooManyArgs)
	}
	all := false // "$arg*" was seen
	for i, w := range words {
		p.src.args = append(p.src.args, argSource{at: w.at, body: w.at, typ: w.at})
		var a Arg
		if p.Source && w.text == "$locals" {
			a.Fetch.Op, a.Type = Locals, p.defaultType()
		} else if strings.Contains(w.text, "$arg*") && !strings.Contains(w.text, `\"`) {
			if err := p.allArgs(w, all); err != nil {
				return err
			}
			all = true
			a.Fetch.Op = AllArgs
			a.Type = p.defaultType()
		} else if err := p.arg(w, i, &a); err != nil {
			return err
		}
		src := &p.src.args[i]
		src.text = w.text[src.body-w.at:]
		src.canon = a.body()
		p.s.Args = append(p.s.Args, a)
	}
	return nil
}

// allArgs checks "$arg*", which stands for all parameters of the function.
func (p *parser) allArgs(w word, again bool) error {
	at := w.at + strings.Index(w.text, "$arg*")
	switch {
	case w.text != "$arg*":
		return p.fail(at, BadVarArgs)
	case p.s.Place.Access != "":
		return p.fail(at, BadVar)
	case again:
		return p.fail(at, DoubleArgs)
	case p.Source: // debug data tells where parameters are, wherever that is
	case p.s.Place.Offset != 0:
		return p.fail(at, NoFentryArgs)
	case !p.Types:
		return p.fail(at, NoSupBtfArg)
	}
	return nil
}

// arg = [NAME "="] FETCH [":" TYPE ["[" N "]"]].
func (p *parser) arg(w word, i int, a *Arg) error {
	name, body, named := strings.Cut(w.text, "=")
	at := w.at
	switch {
	case !named:
		body, name = name, fmt.Sprintf("arg%d", i+1)
		if v := p.untyped(body); p.Types && isIdent(v) {
			name = v // a variable keeps its own name
		} else if p.Source && v != "" && (isAlpha(v[0]) || strings.IndexByte("*&(:", v[0]) >= 0 || strings.HasPrefix(v, "$retval")) {
			if v = exprName(v); isIdent(v) && !slices.ContainsFunc(p.s.Args, func(o Arg) bool { return o.Name == v }) {
				name = v
			}
		}
	case name == "":
		return p.fail(w.at, NoArgName)
	default:
		at += len(name) + 1
	}
	switch {
	case len(name) > maxArgName:
		return p.fail(w.at, ArgNameTooLong)
	case !isIdent(name):
		return p.fail(w.at, BadArgName)
	}
	if slices.Contains(reservedNames, name) ||
		slices.ContainsFunc(p.s.Args, func(o Arg) bool { return o.Name == name }) {
		return p.fail(w.at, UsedArgName)
	}
	a.Name, a.Named = name, named
	src := &p.src.args[i]
	src.body, src.typ = at, at

	limit := maxBody
	if p.Dialect == Process {
		limit = longBody
	}
	switch {
	case len(body) > limit:
		return p.fail(at, ArgTooLong)
	case body == "":
		return p.fail(at, NoArgBody)
	}
	return p.body(body, at, src, a)
}

// body = FETCH [":" TYPE ["[" N "]"]]. The array part is read first, then the
// type, then the fetch, then whether they go together: the kernel's order.
func (p *parser) body(body string, at int, src *argSource, a *Arg) error {
	fetch, typed := body, ""
	colon := p.typeColon(body)
	if colon >= 0 {
		fetch, typed = body[:colon], body[colon+1:]
		src.typ = at + colon + 1
		var err error
		if typed, err = p.array(typed, src.typ, a); err != nil {
			return err
		}
	}
	if p.Dialect == Process && (fetch == "stack" || fetch == "$stacktrace") {
		a.Fetch.Op, a.Type = StackTrace, Type{Base: Trace}
		if !a.Named {
			a.Name = "stack"
		}
		if colon >= 0 {
			return p.fail(src.typ, BadType)
		}
		return nil
	}
	text := fetch == "$comm" || fetch == "$COMM" || strings.HasPrefix(fetch, `\"`)
	switch {
	case text && colon >= 0 && (a.Type.Array != 0 || typed != "string"):
		return p.fail(src.typ, NeedStringType)
	case text:
		a.Type = Type{Written: typed, Base: String}
	case colon < 0:
		a.Type = p.defaultType()
	default:
		if err := p.typ(typed, src.typ, &a.Type); err != nil {
			return err
		}
	}
	if err := p.fetch(fetch, at, src, &a.Fetch); err != nil {
		return err
	}
	return p.agree(a, at, src.typ)
}

// typeColon finds the colon before the type, -1 if there is none. A quoted
// text may hold colons, and so may a C++ name: in pairs.
func (p *parser) typeColon(body string) int {
	skip := 0
	if strings.HasPrefix(body, `\"`) {
		skip = 2 + strings.LastIndexByte(body[2:], '"') + 1
	}
	find := singleColon
	if p.Dialect != Process {
		find = func(s string) int { return strings.IndexByte(s, ':') }
	} else if strings.Contains(body, "@") {
		find = symbolColon
	}
	if i := find(body[skip:]); i >= 0 {
		return skip + i
	}
	return -1
}

// symbolColon finds the colon before the type of a body with a symbol: @SYM, @LIB:SYM, +8(@LIB:SYM).
func symbolColon(body string) int {
	from := strings.LastIndexByte(body, ')') + 1
	first := singleColon(body[from:])
	if first < 0 {
		return -1
	}
	first += from
	second := singleColon(body[first+1:])
	switch name := body[from:first]; {
	case from > 0 || !strings.HasPrefix(name, "@") || len(name) > 1 && (isDigit(name[1]) || name[1] == '+'):
		return first
	case second >= 0:
		return first + 1 + second
	case strings.Contains(name, "/") || strings.Contains(name, ".so"):
		return -1
	case types[strings.SplitN(body[first+1:], "[", 2)[0]] != (Type{}) || strings.Contains(body[first+1:], "@"): // a bit-field is b4@0/32
		return first
	}
	return -1
}

// untyped is a body without its type.
func (p *parser) untyped(body string) string {
	if i := p.typeColon(body); i >= 0 {
		return body[:i]
	}
	return body
}

// fetch = REG | VAR | MEM | DEREF | IMM | variable; at is where text begins.
func (p *parser) fetch(text string, at int, src *argSource, f *Fetch) error {
	if text == "" {
		return p.fail(at, BadFetchArg)
	}
	if p.Source {
		if ok, err := p.sourceFetch(text, at, f); ok {
			return err
		}
	}
	switch text[0] {
	case '%':
		f.Op, f.Name = Reg, text[1:]
		if !p.isReg(f.Name) {
			return p.fail(at, BadRegName)
		}
		return nil
	case '$':
		return p.dollar(text, at, src, f)
	case '@':
		return p.memory(text[1:], at, f)
	case '+', '-':
		return p.deref(text, at, src, f)
	case '\\':
		return p.immediate(text[1:], at+1, f)
	}
	if isAlpha(text[0]) {
		return p.variable(text, at, src, f)
	}
	return p.fail(at, BadFetchArg)
}

// dollar = "$retval" {FIELD} | "$stack" [N] | "$comm" | "$arg" N | "$addr". An
// access is neither where a function begins nor where it returns.
func (p *parser) dollar(text string, at int, src *argSource, f *Fetch) error {
	name := text[1:]
	if name == "comm" || name == "COMM" {
		f.Op = Comm
		return nil
	}
	if name == "stack" {
		f.Op = Stack
		return nil
	}
	if n, ok := strings.CutPrefix(name, "stack"); ok {
		f.Op = StackN
		return p.index(n, at, p.maxStack(), BadStackNum, f)
	}
	data := p.s.Place.Access != ""
	if name == "addr" && data {
		f.Op = DataAddr
		return nil
	}
	if n, ok := strings.CutPrefix(name, "arg"); ok && p.Dialect != Uprobes && !data {
		f.Op = ArgN
		if err := p.index(n, at, kernStack, BadArgNum, f); err != nil {
			return err
		}
		switch {
		case f.N == 0:
			return p.fail(at, BadArgNum)
		case p.s.Place.Offset != 0:
			return p.fail(at, NoFentryArgs)
		}
		return nil
	}
	if fields, ok := strings.CutPrefix(name, "retval"); ok && !data && (fields == "" || strings.IndexByte("-.", fields[0]) >= 0) {
		if p.s.Kind == Probe {
			return p.fail(at, RetvalOnProbe)
		}
		f.Op = Retval
		if fields != "" && !p.Types {
			return p.fail(at, NoSupBtfArg)
		}
		return p.fields(fields, at+len("$retval"), src, f)
	}
	return p.fail(at, BadVar)
}

// index reads the decimal N of $stackN and $argN into f.N.
func (p *parser) index(digits string, at int, limit uint64, tooBig Code, f *Fetch) error {
	if !isDigits(digits) {
		return p.fail(at, BadVar)
	}
	if trimmed := strings.TrimLeft(digits, "0"); trimmed != "" {
		n, ok := parseDigits(trimmed, 63)
		if !ok {
			return p.fail(at, BadVar)
		}
		if n > limit {
			return p.fail(at, tooBig)
		}
		f.N = int64(n)
	}
	return nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

func (p *parser) maxStack() uint64 {
	switch {
	case p.MaxStack != 0:
		return p.MaxStack
	case p.Dialect == Kprobes:
		return kernStack
	}
	return 1<<63 - 1
}

// memory parses the part behind "@": ADDR, "+" FILEOFFS, or SYM [("+"|"-") OFFS]. at is where the
// "@" stands: all errors point at it.
func (p *parser) memory(text string, at int, f *Fetch) error {
	var ok bool
	switch {
	case text != "" && isDigit(text[0]):
		addr, ok := parseUint(text, 64)
		if !ok {
			return p.fail(at, BadMemAddr)
		}
		f.Op, f.N = Abs, int64(addr)
		return nil
	case strings.HasPrefix(text, "+"):
		if p.Dialect == Kprobes {
			return p.fail(at, FileOnKprobe)
		}
		f.Op = FileOff
		if f.N, ok = parseInt(text[1:]); !ok {
			return p.fail(at, BadFileOffs)
		}
		return nil
	case p.Dialect == Uprobes:
		return p.fail(at, SymOnUprobe)
	}
	f.Op = Sym
	module := ""
	if i := singleColon(text); i > 0 && p.Dialect == Process { // LIB:SYM
		if module, text = text[:i+1], text[i+1:]; strings.ContainsAny(module, `"()`) {
			return p.fail(at, BadMemAddr)
		}
	}
	if i := strings.IndexAny(text, "+-"); i >= 0 {
		if f.N, ok = parseInt(text[i:]); !ok {
			return p.fail(at, BadMemAddr)
		}
		text = text[:i]
	}
	more := ".$"
	if p.Dialect == Process {
		more = ".$:/<>,~" // C++, Rust and Go variables
	}
	if !isWord(text, more) {
		return p.fail(at, BadMemAddr)
	}
	f.Name = module + text
	return nil
}

// deref = ("+" | "-") ["u"] OFFS "(" FETCH ")".
func (p *parser) deref(text string, at int, src *argSource, f *Fetch) error {
	f.Op = Deref
	open := strings.IndexByte(text, '(')
	if open < 0 {
		return p.fail(at, DerefNeedBrace)
	}
	digits, user := strings.CutPrefix(text[1:open], "u")
	f.User = user
	n, ok := parseInt(text[:1] + digits)
	if !ok {
		return p.fail(at, BadDerefOffs)
	}
	f.N = n
	inner, innerAt := text[open+1:], at+open+1
	end := strings.LastIndexByte(inner, ')')
	if end < 0 {
		return p.fail(innerAt+len(inner), DerefOpenBrace)
	}
	f.Inner = new(Fetch)
	if err := p.fetch(inner[:end], innerAt, src, f.Inner); err != nil {
		return err
	}
	switch {
	case f.Inner.Op == Comm || f.Inner.Op == ImmStr:
		return p.fail(innerAt, CommCantDeref)
	case f.steps() > maxOps:
		return p.fail(innerAt, TooManyOps)
	case end+1 < len(inner):
		return p.fail(innerAt+end+1, BadFetchArg)
	}
	return nil
}

// immediate parses the part behind a backslash: a number or a quoted text.
func (p *parser) immediate(text string, at int, f *Fetch) error {
	if body, ok := strings.CutPrefix(text, `"`); ok {
		f.Op = ImmStr
		if f.Name, ok = strings.CutSuffix(body, `"`); !ok {
			return p.fail(at+len(text), ImmStrNoClose)
		}
		return nil
	}
	f.Op = Imm
	if n, ok := parseInt(text); ok {
		f.N = n
		return nil
	}
	n, ok := parseUint(text, 64)
	if !ok {
		return p.fail(at, BadImm)
	}
	f.N = int64(n)
	return nil
}

// variable = NAME {FIELD}, from type information.
func (p *parser) variable(text string, at int, src *argSource, f *Fetch) error {
	end := strings.IndexAny(text, "-.")
	if end < 0 {
		end = len(text)
	}
	switch {
	case !isIdent(text[:end]):
		return p.fail(at, BadFetchArg)
	case !p.Types && p.Dialect != Process: // kernels without type information: an unknown argument
		return p.fail(at, BadFetchArg)
	case !p.Types:
		return p.fail(at, NoSupBtfArg)
	}
	f.Op, f.Name = Var, text[:end]
	if end < len(text) && text[end] == '.' {
		return p.fail(at+end+1, NoSupDatArg)
	}
	return p.fields(text[end:], at+end, src, f)
}

// fields = {("->" | ".") NAME}; text is "" or begins with "-" or ".".
func (p *parser) fields(text string, at int, src *argSource, f *Fetch) error {
	for text != "" {
		arrow := text[0] == '-'
		n := 1
		if arrow {
			if !strings.HasPrefix(text, "->") {
				return p.fail(at, BadHyphen)
			}
			n = 2
		}
		text, at = text[n:], at+n
		end := strings.IndexAny(text, "-.")
		if end < 0 {
			end = len(text)
		}
		if !isIdent(text[:end]) {
			return p.fail(at, NoBtfField)
		}
		f.Fields = append(f.Fields, Field{Arrow: arrow, Name: text[:end]})
		src.fields = append(src.fields, at)
		text, at = text[end:], at+end
	}
	return nil
}
