package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"

	cockroach "github.com/cockroachdb/pebble/v2"
)

// get returns a copy of a row.
func get(db *cockroach.DB, k []byte) (v []byte, ok bool, err error) {
	v, c, err := db.Get(k)
	if errors.Is(err, cockroach.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	v = bytes.Clone(v)
	return v, true, c.Close()
}

// scan calls f with the rows that begin with prefix, in order, until it returns false. The slices are lent.
func scan(db *cockroach.DB, prefix key, f func(k, v []byte) (more bool, err error)) error {
	return scanRange(db, prefix, prefix.end(), f)
}

func scanRange(db *cockroach.DB, from, to key, f func(k, v []byte) (more bool, err error)) error {
	it, err := db.NewIter(&cockroach.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	more := true
	for ok := it.First(); ok && more && err == nil; ok = it.Next() {
		more, err = f(it.Key(), it.Value())
	}
	return errors.Join(err, it.Close())
}

func parseNumber(v []byte) uint64 {
	if len(v) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(v)
}
