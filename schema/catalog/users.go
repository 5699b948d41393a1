package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/handfast-mq/handfast/schema"
)

// tokensMax bounds the tokens of one user.
const tokensMax = 20

// Init makes a new cluster with its first administrator, whose token is given. It returns false when the cluster exists.
func (c *Catalog) Init(ctx context.Context, cluster schema.Cluster, token string) (bool, error) {
	if cluster.Partitions < 1 || cluster.Partitions > schema.PartitionsMax {
		return false, schema.Errorf(schema.Invalid, "partitions must be between 1 and %d", schema.PartitionsMax)
	}
	made := false
	err := c.update(ctx, func(tx *Tx) error {
		made = tx.s.cluster == nil
		if !made {
			return nil
		}
		cluster.ID, cluster.Key, cluster.CreatedAt = uuid.NewString(), newKey(), tx.Now
		tx.put(schema.KindCluster, settingsKey, cluster)
		admin := schema.User{ID: 1, Name: "admin", Roles: []string{schema.RoleAdmin}, CreatedAt: tx.Now}
		tx.put(schema.KindUser, key(admin.ID), admin)
		tx.putToken(admin.ID, token, time.Time{})
		return nil
	})
	return made && err == nil, err
}

// NewToken makes a bearer token of 256 random bits.
func NewToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return "hf_" + base64.RawURLEncoding.EncodeToString(b)
}

func (tx *Tx) putToken(u schema.UserID, token string, expires time.Time) schema.Token {
	hash := sha256.Sum256([]byte(token))
	t := schema.Token{ID: schema.TokenID(tx.newID()), User: u, Hash: hash[:], CreatedAt: tx.Now, ExpiresAt: expires}
	tx.put(schema.KindToken, key(t.ID), t)
	return t
}

var namePattern = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N} ._~:/@+-]*$`)

// checkName refuses names that would be trouble in logs, headers and paths.
func checkName(field, name string) error {
	switch {
	case name == "":
		return schema.Errorf(schema.Invalid, "%s is missing", field)
	case len(name) > schema.NameBytesMax:
		return schema.Errorf(schema.Invalid, "%s has more than %d bytes", field, schema.NameBytesMax)
	case !utf8.ValidString(name), !namePattern.MatchString(name):
		return schema.Errorf(schema.Invalid, "%s must begin with a letter or digit and hold only letters, digits, spaces and . _ ~ : / @ + -", field)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > schema.LabelsMax {
		return schema.Errorf(schema.Invalid, "more than %d labels", schema.LabelsMax)
	}
	for k, v := range labels {
		if k == "" || len(k) > schema.NameBytesMax || len(v) > 2*schema.NameBytesMax {
			return schema.Errorf(schema.Invalid, "label names have 1 to %d bytes, values up to %d", schema.NameBytesMax, 2*schema.NameBytesMax)
		}
	}
	return nil
}

// CreateUser adds a user and returns it with its token, which is not kept and cannot be shown again.
func (c *Catalog) CreateUser(ctx context.Context, u schema.User, expires time.Time) (*schema.User, *schema.Token, string, error) {
	if err := checkName("user_name", u.Name); err != nil {
		return nil, nil, "", err
	}
	if err := checkLabels(u.Labels); err != nil {
		return nil, nil, "", err
	}
	if len(u.Roles) > schema.LabelsMax {
		return nil, nil, "", schema.Errorf(schema.Invalid, "more than %d roles", schema.LabelsMax)
	}
	for _, role := range u.Roles {
		if err := checkName("a role", role); err != nil {
			return nil, nil, "", err
		}
	}
	token := NewToken()
	var made schema.Token
	err := c.update(ctx, func(tx *Tx) error {
		if tx.s.userNames[u.Name] != nil {
			return schema.Errorf(schema.Conflict, "there is a user of this name")
		}
		u.ID, u.CreatedAt = schema.UserID(tx.newID()), tx.Now
		tx.put(schema.KindUser, key(u.ID), u)
		made = tx.putToken(u.ID, token, expires)
		return nil
	})
	if err != nil {
		return nil, nil, "", err
	}
	return c.User(u.ID), &made, token, nil
}

// RotateToken gives a user a new token. The former ones end after overlap.
func (c *Catalog) RotateToken(ctx context.Context, id schema.UserID, overlap time.Duration, expires time.Time) (*schema.Token, string, error) {
	if overlap < 0 || overlap > 30*24*time.Hour {
		return nil, "", schema.Errorf(schema.Invalid, "overlap must be between 0 and 30 days")
	}
	token := NewToken()
	var made schema.Token
	err := c.update(ctx, func(tx *Tx) error {
		if tx.s.users[id] == nil {
			return schema.Errorf(schema.NotFound, "there is no such user")
		}
		kept, end := 0, tx.Now.Add(overlap)
		for _, t := range tx.s.tokens {
			switch {
			case t.User != id:
			case !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(tx.Now), overlap == 0:
				tx.remove(schema.KindToken, key(t.ID))
			case t.ExpiresAt.IsZero() || t.ExpiresAt.After(end):
				ending := *t
				ending.ExpiresAt = end
				tx.put(schema.KindToken, key(t.ID), ending)
				kept++
			default:
				kept++
			}
		}
		if kept >= tokensMax {
			return schema.Errorf(schema.Conflict, "a user has at most %d tokens: revoke some", tokensMax)
		}
		made = tx.putToken(id, token, expires)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	return &made, token, nil
}

// RevokeToken ends a token at once.
func (c *Catalog) RevokeToken(ctx context.Context, id schema.TokenID) error {
	return c.update(ctx, func(tx *Tx) error {
		if tx.s.tokens[id] == nil {
			return schema.Errorf(schema.NotFound, "there is no such token")
		}
		tx.remove(schema.KindToken, key(id))
		return nil
	})
}

// SetUserDisabled lets a user in no more, or again.
func (c *Catalog) SetUserDisabled(ctx context.Context, id schema.UserID, disabled bool) error {
	return c.update(ctx, func(tx *Tx) error {
		u := tx.s.users[id]
		switch {
		case u == nil:
			return schema.Errorf(schema.NotFound, "there is no such user")
		case u.Disabled == disabled:
			return nil
		}
		changed := *u
		changed.Disabled = disabled
		tx.put(schema.KindUser, key(id), changed)
		return nil
	})
}
