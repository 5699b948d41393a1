package pebble

import (
	"encoding/binary"

	"github.com/handfast-mq/handfast/schema"
)

// Every row begins with one letter. Numbers are big-endian, so that rows sort as their numbers do.
const (
	rowFrame        = 'f' // partition, topic, first offset -> place of a frame
	rowOffset       = 'o' // partition, first offset -> topic
	rowCommit       = 'c' // partition, epoch, seq -> place of a commit
	rowSize         = 'b' // partition, topic -> bytes of its frames
	rowLive         = 'l' // segment -> bytes of its frames that are not forgotten
	rowMark         = 'g' // how far the log is indexed
	rowCursor       = 'u' // partition, subscription, epoch -> state
	rowAttempt      = 'a' // subscription, newest first -> attempt
	rowMessage      = 'd' // message, newest first -> subscription, for the attempts of a message
	rowChange       = 'm' // revision -> change
	rowCheckpoint   = 'k' // the newest checkpoint
	rowSession      = 's' // session -> live or fenced
	rowNode         = 'n' // node -> its row
	rowPartitionRow = 'p' // partition -> its row
	rowArtifact     = 'x' // hash, chunk -> a piece of a function's code
)

type key []byte

func row(letter byte) key                        { return append(make(key, 0, 40), letter) }
func (k key) partition(p schema.PartitionID) key { return binary.BigEndian.AppendUint16(k, uint16(p)) }
func (k key) number(n int64) key                 { return binary.BigEndian.AppendUint64(k, uint64(n)) }

// end is the key after all that begin with k.
func (k key) end() key {
	e := append(key(nil), k...)
	for i := len(e) - 1; i >= 0; i-- {
		if e[i]++; e[i] != 0 {
			return e[:i+1]
		}
	}
	return nil
}

func numberAt(k []byte, i int) int64 { return int64(binary.BigEndian.Uint64(k[i:])) }

func frameKey(p schema.PartitionID, t schema.TopicID, first schema.Offset) key {
	return row(rowFrame).partition(p).number(int64(t)).number(int64(first))
}

func topicKey(p schema.PartitionID, t schema.TopicID) key {
	return row(rowFrame).partition(p).number(int64(t))
}

func offsetKey(p schema.PartitionID, first schema.Offset) key {
	return row(rowOffset).partition(p).number(int64(first))
}

func commitKey(p schema.PartitionID, e schema.Epoch, s schema.Seq) key {
	return row(rowCommit).partition(p).number(int64(e)).number(int64(s))
}

func epochKey(p schema.PartitionID, e schema.Epoch) key {
	return row(rowCommit).partition(p).number(int64(e))
}
