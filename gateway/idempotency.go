package gateway

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

const headerIdempotencyKey = "Idempotency-Key"

// headerKey takes the idempotency key from the header, where nothing else gave one.
func headerKey(c *fiber.Ctx, key *string) (err error) {
	fields := c.Request().Header.PeekAll(headerIdempotencyKey)
	switch {
	case len(fields) > 1:
		return schema.Errorf(schema.Invalid, "Idempotency-Key is there twice")
	case len(fields) == 1 && len(fields[0]) > 0 && *key == "":
		*key, err = idempotencyKey(string(fields[0]))
	}
	return err
}

// idempotencyKey reads the header: an sf-string, in quotes, or the bare key that many clients send.
func idempotencyKey(header string) (string, error) {
	bad := schema.Errorf(schema.Invalid, "Idempotency-Key must be one string of at most %d printable characters", schema.KeyBytesMax)
	key := strings.TrimSpace(header)
	if strings.HasPrefix(key, `"`) {
		if len(key) < 2 || !strings.HasSuffix(key, `"`) {
			return "", bad
		}
		key = key[1 : len(key)-1]
		var out strings.Builder
		for i := 0; i < len(key); i++ {
			switch {
			case key[i] == '\\' && i+1 < len(key) && (key[i+1] == '"' || key[i+1] == '\\'):
				i++
			case key[i] == '\\', key[i] == '"':
				return "", bad
			}
			out.WriteByte(key[i])
		}
		key = out.String()
	}
	if key == "" || len(key) > schema.KeyBytesMax || !printable(key) {
		return "", bad
	}
	return key, nil
}
