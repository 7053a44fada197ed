package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"kprobe/source"
	"kprobe/spec"
)

// nodes is a container of libstdc++ whose elements are in nodes that point at each other. It is known by the beginning
// of its name and by members, which are paths.
type nodes struct {
	name  string
	count string // how many there are
	first string // a pointer to the first node; of trees to the root
	in    string // the member whose type has elem among the parameters of its template; "": the container
	elem  string
	links int64 // the words of a node before its element
	next  int64 // the word of a node that points at the next; of trees at the node to the left, before that to the right
	tree  bool
}

var nodeLayouts = []nodes{
	{name: "list<", count: "_M_impl._M_node._M_size", first: "_M_impl._M_node._M_next", elem: "_Tp", links: 2},
	hashed("unordered_map<"), hashed("unordered_multimap<"), hashed("unordered_set<"), hashed("unordered_multiset<"),
	tree("map<"), tree("multimap<"), tree("set<"), tree("multiset<"),
}

func hashed(name string) nodes {
	return nodes{name: name, count: "_M_h._M_element_count", first: "_M_h._M_before_begin._M_nxt", in: "_M_h", elem: "_Value", links: 1}
}

func tree(name string) nodes {
	return nodes{name: name, count: "_M_t._M_impl._M_node_count", first: "_M_t._M_impl._M_header._M_parent", in: "_M_t", elem: "_Val", links: 4, next: 2, tree: true}
}

// inNodes adds the elements of one of nodeLayouts: the first ones, and of trees those next to the root, in their order. A tree
// of up to 5 elements has no others.
func (w *parts) inNodes(path string, v value, t *dwarf.StructType, depth int) bool {
	for i := range nodeLayouts {
		l := &nodeLayouts[i]
		if !strings.HasPrefix(t.StructName, l.name) || w.site.Arch.PtrSize != 8 {
			continue
		}
		count, ok1, err1 := w.path(v, l.count)
		first, ok2, err2 := w.path(v, l.first)
		in, ok3, err3 := v, true, error(nil)
		if l.in != "" {
			in, ok3, err3 = w.path(v, l.in)
		}
		if !ok1 || !ok2 || !ok3 || errors.Join(err1, err2, err3) != nil {
			continue
		}
		of, ok := source.Plain(in.typ).(*dwarf.StructType)
		if !ok {
			continue
		}
		elem := w.site.Data.Parameter(of, l.elem)
		n, err1 := w.site.word(count)
		at, err2 := w.site.word(first)
		if elem == nil || elem.Size() <= 0 || errors.Join(err1, err2) != nil {
			continue
		}
		w.number(below(path, spec.PartCount), n)
		w.number(below(path, spec.PartSparse), &spec.Fetch{Op: spec.Imm, N: 1})
		if depth >= maxDepth {
			return true
		}
		elements := func(k int, there *spec.Fetch) {
			w.element(below(path, fmt.Sprintf("[%d]", k)), value{typ: elem, addr: plus(there, uint64(8*l.links))}, depth+1)
		}
		if l.tree {
			k := 0
			w.inOrder(at, l.next, treeLevels, func(node *spec.Fetch) {
				w.number(below(below(path, fmt.Sprintf("[%d]", k)), spec.PartTag), node)
				elements(k, &spec.Fetch{Op: spec.Maybe, Inner: node})
				k++
			})
			return true
		}
		for k := range maxElems {
			elements(k, &spec.Fetch{Op: spec.Maybe, Inner: at, Guard: &spec.Guard{Of: n, Size: 8, N: int64(k)}})
			at = load(plus(&spec.Fetch{Op: spec.Maybe, Inner: at}, uint64(8*l.next)))
		}
		return true
	}
	return false
}

// treeLevels is how far from the root the nodes of a tree are read.
const treeLevels = 3

// inOrder calls f with the nodes of a tree, from the left to the right. What is not there is a null pointer.
func (w *parts) inOrder(node *spec.Fetch, left int64, levels int, f func(*spec.Fetch)) {
	if levels == 0 {
		return
	}
	child := func(word int64) *spec.Fetch {
		return load(plus(&spec.Fetch{Op: spec.Maybe, Inner: node}, uint64(8*word)))
	}
	w.inOrder(child(left), left, levels-1, f)
	f(node)
	w.inOrder(child(left+1), left, levels-1, f)
}

// element adds an element of a container: of a struct its members, where they are the path's own.
func (w *parts) element(path string, v value, depth int) {
	if isStruct(v.typ) && w.plainStruct(v.typ, v) {
		w.members(path, v, depth-1)
		return
	}
	w.part(below(path, spec.PartValue), v, depth)
}

// optional adds what is in a std::optional, or that there is nothing.
func (w *parts) optional(path string, v value, t *dwarf.StructType, depth int) bool {
	if !strings.HasPrefix(t.StructName, "optional<") || v.addr == nil {
		return false
	}
	is, ok1, err1 := w.path(v, "_M_payload._M_engaged")
	in, ok2, err2 := w.path(v, "_M_payload._M_payload._M_value")
	if !ok1 || !ok2 || errors.Join(err1, err2) != nil || is.addr == nil || in.addr == nil || is.typ.Size() != 1 {
		return false
	}
	engaged := load(is.addr)
	w.add(spec.Arg{Name: below(path, spec.PartTag), Named: true, Fetch: *engaged, Type: spec.Type{Written: "u8", Base: spec.Unsigned, Size: 1}})
	in.addr = &spec.Fetch{Op: spec.Maybe, Inner: in.addr, Guard: &spec.Guard{Of: engaged, Size: 1}}
	w.element(path, in, depth+1)
	return true
}

// tuple adds the elements of a std::tuple: each is in a base class of its own, the last one first.
func (w *parts) tuple(path string, v value, t *dwarf.StructType, depth int) bool {
	if !strings.HasPrefix(t.StructName, "tuple<") {
		return false
	}
	found := map[int]value{}
	var walk func(v value, depth int)
	walk = func(v value, depth int) {
		s, ok := source.Plain(v.typ).(*dwarf.StructType)
		if !ok || depth > maxParts {
			return
		}
		for _, f := range w.site.Data.Complete(s).Field {
			inner, ok := source.Plain(f.Type).(*dwarf.StructType)
			if f.Name == "_M_head_impl" && strings.HasPrefix(s.StructName, "_Head_base<") {
				number, _, _ := strings.Cut(strings.TrimPrefix(s.StructName, "_Head_base<"), ",")
				if k, err := strconv.Atoi(strings.TrimRight(number, "uUlL")); err == nil {
					if m, err := w.site.part(v, f.ByteOffset, max(0, f.Type.Size()), f.Type); err == nil {
						found[k] = m
					}
				}
			} else if ok && (f.Name == "" || f.Name == inner.StructName) {
				if m, err := w.site.part(v, f.ByteOffset, max(0, f.Type.Size()), f.Type); err == nil {
					walk(m, depth+1)
				}
			}
		}
	}
	walk(v, 0)
	for k := range len(found) {
		if _, ok := found[k]; !ok {
			return false // one is empty: it has no place
		}
	}
	if len(found) == 0 {
		return false
	}
	if depth >= maxDepth {
		w.more(path)
		return true
	}
	for k := range len(found) {
		w.part(below(path, fmt.Sprintf("__%d", k)), found[k], depth+1)
	}
	return true
}

// lengths are containers of Rust of which it is told how much is in them.
var lengths = []struct{ name, len string }{
	{"HashMap<", "base.table.table.items"},
	{"HashSet<", "base.map.table.table.items"},
	{"BTreeMap<", "length"},
	{"BTreeSet<", "map.length"},
	{"VecDeque<", "len"},
}

// length adds how much is in one of lengths.
func (w *parts) length(path string, v value, t *dwarf.StructType) bool {
	for _, l := range lengths {
		if !strings.HasPrefix(t.StructName, l.name) {
			continue
		}
		n, ok, err := w.path(v, l.len)
		if !ok || err != nil {
			continue
		}
		a := spec.Arg{Name: below(path, "len"), Named: true}
		if w.typed(&a, n) == nil {
			w.add(a)
			return true
		}
	}
	return false
}
