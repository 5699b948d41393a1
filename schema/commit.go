package schema

// Validate tells what is wrong with a commit's shape. Every Log refuses such a commit and changes nothing.
func (c *Commit) Validate() error {
	switch {
	case c.Partition < 0 || c.Partition >= PartitionsMax:
		return Errorf(Invalid, "partition %d is outside 0..%d", c.Partition, PartitionsMax-1)
	case c.Epoch < 1 || c.Seq < 1 || c.Committed < 0:
		return Errorf(Invalid, "epoch %d and seq %d must be 1 or more, committed %d not negative", c.Epoch, c.Seq, c.Committed)
	case len(c.Frames) == 0:
		return Errorf(Invalid, "a commit needs a frame")
	}
	next := c.First()
	for i := range c.Frames {
		f := &c.Frames[i]
		if f.First != next || f.First < 0 || f.Count < 1 || f.End() > OffsetMax+1 || f.Topic < 0 {
			return Errorf(Invalid, "frame %d: offsets %d+%d of topic %d do not adjoin at %d", i, f.First, f.Count, f.Topic, next)
		}
		next = f.End()
	}
	return nil
}
