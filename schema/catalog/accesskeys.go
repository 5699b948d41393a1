package catalog

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/handfast-mq/handfast/schema"
)

// accessKeyPrefix begins the access key id of a token.
const accessKeyPrefix = "HF"

func newKey() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

// EnsureKey gives a cluster that was made without one its secret for access keys.
func (c *Catalog) EnsureKey(ctx context.Context) error {
	return c.update(ctx, func(tx *Tx) error {
		if tx.s.cluster == nil || len(tx.s.cluster.Key) > 0 {
			return nil
		}
		changed := *tx.s.cluster
		changed.Key = newKey()
		tx.put(schema.KindCluster, settingsKey, changed)
		return nil
	})
}

// AccessKey returns the key pair that goes with a token, for clients that sign their requests with AWS Signature Version 4. It is derived,
// not kept, and ends with the token.
func (c *Catalog) AccessKey(token schema.TokenID) (id, secret string) {
	c.mu.RLock()
	key := c.state.cluster.Key
	c.mu.RUnlock()
	id = accessKeyPrefix + strconv.FormatInt(int64(token), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id))
	return id, base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// AuthenticateKey returns the user and the secret of an access key id; nil when its token is not valid now.
func (c *Catalog) AuthenticateKey(accessKeyID string, now time.Time) (u *schema.User, secret string) {
	digits, ours := strings.CutPrefix(accessKeyID, accessKeyPrefix)
	n, err := schema.ParseID(digits)
	if !ours || err != nil {
		return nil, ""
	}
	c.mu.RLock()
	t := c.state.tokens[schema.TokenID(n)]
	u = c.state.userOf(t, now)
	c.mu.RUnlock()
	if u == nil {
		return nil, ""
	}
	_, secret = c.AccessKey(t.ID)
	return u, secret
}

// TokenOf returns the record of a token that is valid now, or nil.
func (c *Catalog) TokenOf(token []byte, now time.Time) *schema.Token {
	hash := sha256.Sum256(token)
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.state.tokenHashes[hash]
	if c.state.userOf(t, now) == nil {
		return nil
	}
	return t
}

// userOf returns the user whom a token lets in now; nil when it does not.
func (s *state) userOf(t *schema.Token, now time.Time) *schema.User {
	if t == nil || !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt) {
		return nil
	}
	u := s.users[t.User]
	if u == nil || u.Disabled {
		return nil
	}
	return u
}
