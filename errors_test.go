package kprobe_test

import (
	"errors"
	"fmt"
	"go/ast"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"kprobe"
	"kprobe/internal/errno"
	"kprobe/spec"
	"kprobe/symbol"
	"kprobe/target"
)

// Who meets an error finds its errno by errors.Is and by errors.As, however deep it lies.
func TestErrorsAreErrnos(t *testing.T) {
	cause := errors.New("a cause")
	for _, tt := range []struct {
		err  error
		want syscall.Errno
	}{
		{&symbol.NotFoundError{Name: "f"}, syscall.ENOENT},
		{&symbol.NoModuleError{Module: "m"}, syscall.ENOENT},
		{&symbol.AmbiguousError{Name: "f"}, syscall.EADDRNOTAVAIL},
		{&spec.SyntaxError{Errno: syscall.E2BIG}, syscall.E2BIG},
		{&spec.SyntaxError{Errno: syscall.E2BIG, Err: cause}, syscall.E2BIG},
		{&kprobe.Error{Errno: syscall.EBUSY}, syscall.EBUSY},
		{&kprobe.Error{Errno: syscall.EBUSY, Err: cause}, syscall.EBUSY},
		{&kprobe.Error{Errno: syscall.EBUSY, Err: syscall.EIO}, syscall.EBUSY}, // its own comes first
		{&kprobe.Error{Err: syscall.EIO}, syscall.EIO},
		{errno.New(syscall.EILSEQ, "a reason"), syscall.EILSEQ},
		{errno.Gone(1), syscall.ESRCH},
		{target.ErrGone, syscall.ESRCH},
		{&kprobe.BatchError{Err: target.ErrGone}, syscall.ESRCH},
	} {
		err := fmt.Errorf("wrapped: %w", tt.err)
		if !errors.Is(err, tt.want) {
			t.Errorf("%T %q is not %v", tt.err, tt.err, tt.want)
		}
		if got := syscall.Errno(0); !errors.As(err, &got) || got != tt.want {
			t.Errorf("%T %q holds the errno %v, want %v", tt.err, tt.err, got, tt.want)
		}
	}
	if got := syscall.Errno(0); errors.As(error(&kprobe.Error{Err: cause}), &got) {
		t.Errorf("an error without an errno holds %v", got)
	}
	if err := error(&kprobe.Error{Errno: syscall.EBUSY, Err: cause}); !errors.Is(err, cause) {
		t.Error("the cause of an error is not found")
	}
}

// checkErrors holds that an error gives what it is by Unwrap, and by nothing else: Is alone leaves errors.As
// without an answer.
func checkErrors(files []source) (broken []string) {
	type name struct{ dir, typ string }
	errs, methods := map[name]bool{}, map[name][]string{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			fn, _ := d.(*ast.FuncDecl)
			if fn == nil || fn.Recv == nil || f.test() {
				continue
			}
			typ := fn.Recv.List[0].Type
			if p, ok := typ.(*ast.StarExpr); ok {
				typ = p.X
			}
			id, _ := typ.(*ast.Ident)
			if id == nil {
				continue
			}
			switch n := (name{f.dir, id.Name}); fn.Name.Name {
			case "Error":
				errs[n] = true
			case "Is", "As":
				methods[n] = append(methods[n], fmt.Sprintf("%s: %s.%s; an error gives what it is by Unwrap", f.at(fn.Pos()), id.Name, fn.Name.Name))
			}
		}
	}
	for n, m := range methods {
		if errs[n] {
			broken = append(broken, m...)
		}
	}
	slices.Sort(broken)
	return broken
}

func TestErrorsUnwrap(t *testing.T) {
	for _, b := range checkErrors(read(t, os.DirFS("."))) {
		t.Error(b)
	}
	root := fstest.MapFS{
		"x/a.go": {Data: []byte("package x\ntype e int\nfunc (*e) Error() string\nfunc (*e) Is(error) bool\ntype s int\nfunc (s) Is(s) bool")},
		"x/b.go": {Data: []byte("package x\ntype f int\nfunc (f) As(any) bool\nfunc (f) Error() string\nfunc (f) Unwrap() error")},
	}
	if got := strings.Join(checkErrors(read(t, root)), "\n"); !strings.Contains(got, "x/a.go:4: e.Is;") || !strings.Contains(got, "x/b.go:3: f.As;") || strings.Contains(got, "s.Is") {
		t.Errorf("not held: %q", got)
	}
}
