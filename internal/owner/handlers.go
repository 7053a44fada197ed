package owner

import (
	"bytes"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
)

// Aside runs handlers on a goroutine of their own, and what they answer on the owner thread. The
// hit is being served until then: its thread must not be overtaken by the removal of what it
// stands in.
func (o *Owner) Aside(handlers func() (then func())) {
	serving := o.serving
	serving.Add(1)
	go func() {
		defer serving.Done()
		o.Do(onHandlerGoroutine(handlers))
	}()
}

// Grace waits until the handlers that run now are done, as synchronize_rcu
// does for the kernel. Hits that come meanwhile are not waited for: under load
// there might be no end of them. Where handlers run on the owner thread, none is under way
// when anything else happens there.
func (o *Owner) Grace() {
	if !o.concurrent {
		return
	}
	var running *sync.WaitGroup
	o.On(func() { running, o.serving = o.serving, new(sync.WaitGroup) })
	if running == nil {
		running = o.serving // the owner has ended: no more come
	}
	running.Wait()
}

// Served waits for all handlers, when the thread has ended.
func (o *Owner) Served() { o.serving.Wait() }

// onHandlerGoroutine is a frame to be found by InHandler.
//
//go:noinline
func onHandlerGoroutine(f func() func()) func() { return f() }

var handlerFrame = []byte(runtime.FuncForPC(reflect.ValueOf(onHandlerGoroutine).Pointer()).Name() + "(")

// InHandler tells whether the caller is a handler. Handlers that run aside are
// known by their stack: only calls that are slow anyhow ask, and so a hit pays
// nothing for it.
func (o *Owner) InHandler() bool {
	return o.t.OnOwner() || o.concurrent && bytes.Contains(debug.Stack(), handlerFrame)
}
