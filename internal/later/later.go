// Package later hands over what comes up where it cannot be handed over: under a lock, say.
package later

import (
	"context"
	"sync"
)

// Queue keeps values until they can be handed over, in order. The zero value is an empty one.
type Queue[T any] struct {
	mu     sync.Mutex
	values []T
	giving bool
}

// Add has a value wait. Anybody may call it anywhere.
func (q *Queue[T]) Add(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.values = append(q.values, v)
}

// Give hands over all that waits, and what comes meanwhile, unless somebody does so already.
func (q *Queue[T]) Give(to func(T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.giving {
		return
	}
	q.giving = true
	for len(q.values) > 0 {
		v := q.values[0]
		q.values = q.values[1:]
		q.mu.Unlock()
		to(v)
		q.mu.Lock()
	}
	q.giving = false
}

// Wait runs f and waits for it, no longer than a context allows: f goes on then, and the answer is the
// context's error.
func Wait(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
