package scylla

import "github.com/klauspost/compress/s2"

// packMin is the size below which a blob stays as it is: there is nothing to win.
const packMin = 256

// pack compresses a blob for its row, where that makes it smaller. The same blob gives the same bytes: a commit that is sent again
// changes nothing.
func pack(blob []byte) []byte {
	if len(blob) < packMin {
		return blob
	}
	if packed := s2.Encode(nil, blob); len(packed) < len(blob) {
		return packed
	}
	return blob
}

// unpack is the inverse of pack. The row tells the blob's size, and so whether it was packed. What cannot be unpacked comes back as it
// is: whoever reads a blob checks it.
func unpack(stored []byte, size int64) []byte {
	if int64(len(stored)) == size {
		return stored
	}
	if n, err := s2.DecodedLen(stored); err != nil || int64(n) != size {
		return stored
	}
	blob, err := s2.Decode(nil, stored)
	if err != nil {
		return stored
	}
	return blob
}
