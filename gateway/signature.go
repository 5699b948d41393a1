package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/handfast-mq/handfast/schema"
)

// AWS Signature Version 4, https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
const (
	signatureAlgorithm = "AWS4-HMAC-SHA256"
	signatureTime      = "20060102T150405Z"
	signatureService   = "lambda"
	signatureEnd       = "aws4_request"
	// signatureSkewMax bounds how far a request's time may be from the node's.
	signatureSkewMax = 5 * time.Minute
	signedHeadersMax = 50
)

// signature is what an Authorization header of this kind says.
type signature struct {
	keyID, date, region, service string
	headers                      []string
	value                        string
}

func badSignature(words string) error {
	return schema.Errorf(schema.Unauthenticated, "the request's signature is not accepted: %s", words)
}

// signer authenticates a request that is signed with an access key.
func (g *Gateway) signer(c *fiber.Ctx, now time.Time) (*schema.User, error) {
	s, err := parseSignature(string(c.Request().Header.Peek(fiber.HeaderAuthorization)))
	if err != nil {
		return nil, err
	}
	at, err := time.Parse(signatureTime, c.Get("X-Amz-Date"))
	switch {
	case err != nil || at.Format("20060102") != s.date:
		return nil, badSignature("X-Amz-Date is missing, or not of the credential's day")
	case now.Sub(at).Abs() > signatureSkewMax:
		return nil, badSignature("its time is more than 5 minutes from now: check the clock")
	case s.service != signatureService:
		return nil, badSignature("the credential is for another service than lambda")
	case c.Get("X-Amz-Security-Token") != "":
		return nil, badSignature("access keys have no session token")
	}
	u, secret := g.cfg.Catalog.AuthenticateKey(s.keyID, now)
	if u == nil {
		return nil, badSignature("the access key is not valid")
	}
	canonical, err := canonicalRequest(c, s.headers)
	if err != nil {
		return nil, err
	}
	scope := strings.Join([]string{s.date, s.region, s.service, signatureEnd}, "/")
	toSign := strings.Join([]string{signatureAlgorithm, at.Format(signatureTime), scope, hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.date, s.region, s.service, signatureEnd, toSign} {
		key = mac(key, part)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(key)), []byte(s.value)) {
		return nil, badSignature("it does not match")
	}
	return u, g.limits.take(c, u.ID)
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func parseSignature(header string) (s signature, err error) {
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(header, signatureAlgorithm), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[4] != signatureEnd || fields["Signature"] == "" {
		return s, badSignature("the Authorization header is not well-formed")
	}
	s = signature{keyID: scope[0], date: scope[1], region: scope[2], service: scope[3], value: fields["Signature"], headers: strings.Split(fields["SignedHeaders"], ";")}
	switch {
	case len(s.headers) > signedHeadersMax:
		return s, badSignature("too many headers are signed")
	case !slices.Contains(s.headers, "host") || !slices.Contains(s.headers, "x-amz-date"):
		return s, badSignature("host and x-amz-date must be signed")
	}
	return s, nil
}

func canonicalRequest(c *fiber.Ctx, signed []string) (string, error) {
	var out strings.Builder
	uri := c.Request().URI()
	out.WriteString(c.Method() + "\n" + awsEscape(string(uri.PathOriginal()), true) + "\n" + canonicalQuery(string(uri.QueryString())) + "\n")
	for _, name := range signed {
		values := c.Request().Header.PeekAll(name)
		words := make([]string, len(values))
		for i, v := range values {
			words[i] = strings.Join(strings.Fields(string(v)), " ")
		}
		out.WriteString(name + ":" + strings.Join(words, ",") + "\n")
	}
	sum := hexSum(c.Request().Body())
	if said := c.Get("X-Amz-Content-Sha256"); said != "" && said != sum {
		return "", badSignature("X-Amz-Content-Sha256 is not that of the body")
	}
	out.WriteString("\n" + strings.Join(signed, ";") + "\n" + sum)
	return out.String(), nil
}

func canonicalQuery(raw string) string {
	var pairs []string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, awsEscape(unescape(name), false)+"="+awsEscape(unescape(value), false))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// awsEscape escapes all but letters, digits, - . _ ~, and slashes where they stay.
func awsEscape(s string, slashes bool) string {
	const digits = "0123456789ABCDEF"
	var out strings.Builder
	for _, b := range []byte(s) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '-', b == '.', b == '_', b == '~', b == '/' && slashes:
			out.WriteByte(b)
		default:
			out.Write([]byte{'%', digits[b>>4], digits[b&15]})
		}
	}
	return out.String()
}
