package storetest

import (
	"testing"

	"github.com/handfast-mq/handfast/schema"
)

func TestMemory(t *testing.T) {
	Run(t, func(testing.TB) schema.Store { return NewMemory() }, Options{
		Reopen: func(t testing.TB, s schema.Store) schema.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return s.(*Memory).Reopen()
		}})
}
