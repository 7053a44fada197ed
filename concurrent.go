package kprobe

import (
	"bytes"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
)

// aside runs handlers on a goroutine of their own (Options.Concurrent), and
// what they answer on the owner thread. The hit is being served until then:
// its thread must not be overtaken by the removal of what it stands in.
func (s *Session) aside(handlers func() (then func())) {
	serving := s.serving
	serving.Add(1)
	go func() {
		defer serving.Done()
		s.do(onHandlerGoroutine(handlers))
	}()
}

// grace waits until the handlers that run now are done, as synchronize_rcu
// does for the kernel. Hits that come meanwhile are not waited for: under load
// there might be no end of them. By default handlers run on the owner thread,
// and none is under way when anything else happens there.
func (s *Session) grace() {
	if !s.opts.Concurrent {
		return
	}
	var running *sync.WaitGroup
	s.onOwner(func() { running, s.serving = s.serving, new(sync.WaitGroup) })
	if running == nil {
		running = s.serving // the owner has ended: no more come
	}
	running.Wait()
}

// onHandlerGoroutine is a frame to be found by inHandler.
//
//go:noinline
func onHandlerGoroutine(f func() func()) func() { return f() }

var handlerFrame = []byte(runtime.FuncForPC(reflect.ValueOf(onHandlerGoroutine).Pointer()).Name() + "(")

// inHandler tells whether the caller is a handler. Handlers that run aside are
// known by their stack: only calls that are slow anyhow ask, and so a hit pays
// nothing for it.
func (s *Session) inHandler() bool {
	return s.t.OnOwner() || s.opts.Concurrent && bytes.Contains(debug.Stack(), handlerFrame)
}
