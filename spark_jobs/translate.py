"""
Translates a catalog's pyiceberg properties into Spark's, so that both open the same tables.

Pure: text in, text out. It refuses what Spark cannot open, and leaves out what only pyiceberg understands.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from bookkeeper.errors import ConfigInvalid

Properties = Mapping[str, str]
STORAGE = "bookkeeper.catalogs.storage.StorageCatalog"
Confs = dict[str, str]

_S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
_ADLS_IO = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
_GCS_IO = "org.apache.iceberg.gcp.gcs.GCSFileIO"
_IO_BY_SCHEME = {
    "s3": _S3_IO,
    "s3a": _S3_IO,
    "s3n": _S3_IO,
    "abfs": _ADLS_IO,
    "abfss": _ADLS_IO,
    "gs": _GCS_IO,
}
_S3_SAME = ("s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_S3A = {
    "s3.endpoint": "s3a.endpoint",
    "s3.access-key-id": "s3a.access.key",
    "s3.secret-access-key": "s3a.secret.key",
    "s3.session-token": "s3a.session.token",
    "s3.path-style-access": "s3a.path.style.access",
    "client.region": "s3a.endpoint.region",
}
_REST_SAME = ("credential", "token", "scope", "oauth2-server-uri", "audience", "resource", "prefix")
_REST_SAME_PREFIXES = ("header.", "rest.")
#: asks for keys of the storage with each table, as pyiceberg does by itself
_DELEGATION = "header.X-Iceberg-Access-Delegation"
# A lock held for seconds by another committer would otherwise kill a running stream with SQLITE_BUSY.
_BUSY_TIMEOUT_MS = 20_000


def catalog_confs(properties: Properties) -> Confs:
    """
    The properties of Spark's catalog (without its `spark.sql.catalog.<name>.` prefix); raises ConfigInvalid.
    """
    # With its cache on, Spark would go on reading the snapshot it saw first.
    confs = {**_backend(properties), **_storage(properties), "cache-enabled": "false"}
    if "warehouse" in properties:
        confs["warehouse"] = properties["warehouse"]
    return confs


def _backend(properties: Properties) -> Confs:
    uri = properties.get("uri", "")
    kind = properties.get("type") or _inferred(uri)
    if properties.get("py-catalog-impl") == STORAGE:
        # To read and to maintain nothing: Java's own commits to such a table are not safe.
        return {"type": "hadoop"}
    if kind == "sql":
        return {"type": "jdbc", "jdbc.schema-version": "V1", **_jdbc(uri)}
    if kind == "rest":
        same = {key: value for key, value in properties.items() if key.startswith(_REST_SAME_PREFIXES)}
        if _DELEGATION.lower() not in map(str.lower, same):
            same[_DELEGATION] = "vended-credentials"
        known = {key: properties[key] for key in _REST_SAME if key in properties}
        return {"type": "rest", "uri": uri, **same, **known, **_authenticated(properties)}
    if kind == "hive":
        return {"type": "hive", "uri": uri}
    if kind == "glue":
        return {"type": "glue"}
    raise ConfigInvalid(
        f"catalog.type = {kind or 'unknown'!r}: Spark opens sql, rest, hive and glue",
        hint="Any other catalog needs Spark's own keys: --conf spark.sql.catalog.NAME.catalog-impl=...",
    )


def _authenticated(properties: Properties) -> Confs:
    """The client credentials of `auth.type = oauth2`, which Java renews by itself."""
    kind = properties.get("auth.type", "token-file" if "token-file" in properties else None)
    if kind is None:
        return {}
    own = {key.replace("_", "-"): value for key, value in properties.items() if key.startswith("auth.oauth2.")}
    found = {key: own.get(f"auth.oauth2.{key}", "") for key in ("client-id", "client-secret", "token-url", "scope")}
    if kind != "oauth2" or not all((found["client-id"], found["client-secret"], found["token-url"])):
        raise ConfigInvalid(
            f"catalog: Spark has no way in by {kind!r}",
            hint="Give the job's own configuration a credential and oauth2-server-uri, or auth.type = oauth2 with all "
            "of client-id, client-secret and token-url.",
        )
    scope = {"scope": found["scope"]} if found["scope"] else {}
    credential = f"{found['client-id']}:{found['client-secret']}"
    return {"credential": credential, "oauth2-server-uri": found["token-url"], **scope}


def _inferred(uri: str) -> str:
    scheme = urlsplit(uri).scheme.partition("+")[0]
    known = {"http": "rest", "https": "rest", "thrift": "hive", "sqlite": "sql", "postgresql": "sql"}
    return known.get(scheme, "")


def _jdbc(uri: str) -> Confs:
    dialect = urlsplit(uri).scheme.partition("+")[0]
    if dialect == "sqlite":
        return {"uri": _sqlite(uri)}
    if dialect in ("postgresql", "postgres"):
        return _postgres(uri)
    raise ConfigInvalid(f"catalog.uri begins with {dialect!r}: Spark opens sqlite and postgresql SQL catalogs")


def _sqlite(uri: str) -> str:
    _, found, path = uri.partition(":///")
    path = path.partition("?")[0]
    if not found or not path or path.startswith(":memory:"):
        raise ConfigInvalid(f"catalog.uri = {uri!r}: a SQLite file that Spark can open too is allowed (sqlite:///path)")
    return f"jdbc:sqlite:{path}?busy_timeout={_BUSY_TIMEOUT_MS}"


def _postgres(uri: str) -> Confs:
    parts = urlsplit(uri)
    address = parts.netloc.rpartition("@")[2]
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key.startswith("ssl")])
    confs = {"uri": f"jdbc:postgresql://{address}{parts.path}" + (f"?{query}" if query else "")}
    if parts.username is not None:
        confs["jdbc.user"] = unquote(parts.username)
    if parts.password is not None:
        confs["jdbc.password"] = unquote(parts.password)
    return confs


def _storage(properties: Properties) -> Confs:
    io = _IO_BY_SCHEME.get(_scheme(properties), "")
    confs = {"io-impl": io} if io else {}
    if io == _S3_IO or _any(properties, "s3."):
        confs |= {"io-impl": _S3_IO, **_s3(properties)}
    if io == _ADLS_IO or _any(properties, "adls."):
        confs |= {"io-impl": _ADLS_IO, **_adls(properties)}
    return confs


def _scheme(properties: Properties) -> str:
    return urlsplit(properties.get("warehouse", "")).scheme


def _any(properties: Properties, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in properties)


def _s3(properties: Properties) -> Confs:
    confs = {key: properties[key] for key in _S3_SAME if key in properties}
    for common in ("access-key-id", "secret-access-key", "session-token"):
        if f"client.{common}" in properties:
            confs.setdefault(f"s3.{common}", properties[f"client.{common}"])
    region = properties.get("s3.region") or properties.get("client.region")
    if region:
        confs["client.region"] = region
    # pyiceberg addresses buckets by path by default; the AWS SDK by host name.
    if "s3.endpoint" in properties and properties.get("s3.force-virtual-addressing", "false").lower() != "true":
        confs["s3.path-style-access"] = "true"
    return confs


def _adls(properties: Properties) -> Confs:
    account = _account(properties)
    host = _host(properties, account.get("AccountName", ""))
    confs = {}
    if account.get("AccountName") and account.get("AccountKey"):
        confs["adls.auth.shared-key.account.name"] = account["AccountName"]
        confs["adls.auth.shared-key.account.key"] = account["AccountKey"]
    if "BlobEndpoint" in account:
        # Iceberg calls it a connection string; it is the endpoint's URL.
        confs[f"adls.connection-string.{host}"] = account["BlobEndpoint"]
    if properties.get("adls.sas-token"):
        confs[f"adls.sas-token.{host}"] = properties["adls.sas-token"]
    return confs


def _account(properties: Properties) -> Confs:
    text = properties.get("adls.connection-string", "")
    account = dict(pair.split("=", 1) for pair in text.split(";") if "=" in pair)
    for field, key in (("AccountName", "adls.account-name"), ("AccountKey", "adls.account-key")):
        if key in properties:
            account[field] = properties[key]
    if "BlobEndpoint" in account:
        account["BlobEndpoint"] = account["BlobEndpoint"].rstrip("/")
    return account


def _host(properties: Properties, account: str) -> str:
    return urlsplit(properties.get("warehouse", "")).netloc.rpartition("@")[2] or f"{account}.dfs.core.windows.net"


def hadoop_confs(properties: Properties) -> Confs:
    """
    What Hadoop's own file systems need for checkpoints, remove_orphan_files and storage-only catalogs (complete keys).
    """
    confs = {**_hadoop_azure(properties), **_hadoop_s3(properties)}
    return {f"spark.hadoop.fs.{key}": value for key, value in confs.items()}


def _hadoop_s3(properties: Properties) -> Confs:
    if properties.get("py-catalog-impl") != STORAGE or _IO_BY_SCHEME.get(_scheme(properties)) != _S3_IO:
        return {}
    known = _s3(properties)
    found = {hadoop: known[key] for key, hadoop in _S3A.items() if key in known}
    return {"s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", **found}


def _hadoop_azure(properties: Properties) -> Confs:
    account = _account(properties)
    if not account.get("AccountKey"):
        return {}
    host, endpoint = _host(properties, account.get("AccountName", "")), account.get("BlobEndpoint", "")
    confs = {f"azure.account.key.{host}": account["AccountKey"]}
    confs |= {f"azure.{key}": value for key, value in _emulator(endpoint).items()}
    if endpoint.startswith("http:"):
        # Under its own name abfss insists on TLS, which an emulator has not.
        confs["abfss.impl"] = "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
    return confs


def _emulator(endpoint: str) -> Confs:
    if not endpoint:
        return {}
    parts = urlsplit(endpoint)
    return {
        "account.auth.type": "SharedKey",
        "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB",
        "abfs.endpoint": parts.netloc,
        "always.use.https": str(parts.scheme == "https").lower(),
    }
