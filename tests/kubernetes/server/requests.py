"""What a request is about: a verb, a resource, and which of its objects."""

from __future__ import annotations

from collections.abc import Mapping

from tests.kubernetes.server import errors
from tests.kubernetes.server.access import Call, User
from tests.kubernetes.server.errors import ApiError
from tests.kubernetes.server.objects import Store, Write
from tests.kubernetes.server.schemas import Resource
from tests.kubernetes.server.selectors import Selection, selection

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Request:
    """One request for a resource: what is to be done with which object, or with many."""

    def __init__(
        self,
        resource: Resource,
        verb: str,
        *,
        namespace: str,
        name: str,
        subresource: str,
        query: Mapping[str, str],
    ) -> None:
        self.resource = resource
        self.verb = verb
        self.namespace = namespace
        self.name = name
        self.subresource = subresource
        self.query = query

    @classmethod
    def read(cls, store: Store, method: str, path: list[str], query: Mapping[str, str]) -> Request:
        """Read the address of a request.

        Raises:
            ApiError: 404 or 405, where there is nothing, or nothing that can be done so.
        """
        match path:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise errors.no_such_page()
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = [*rest, "", "", ""][:3]
        resource = store.resource(group, plural)
        if resource.version != version or len(rest) > 3:
            raise errors.no_such_page()
        if subresource and subresource not in (*resource.subresources, "binding"):
            raise errors.no_such_page()
        verb = _verb(method, name, query)
        if resource.namespaced and not namespace and (name or verb == "create"):
            raise errors.method_not_allowed()
        return cls(
            resource, verb, namespace=namespace, name=name, subresource=subresource, query=query
        )

    def asks(self, name: str) -> bool:
        return self.query.get(name, "") in ("true", "1")

    def call(self, user: User) -> Call:
        of = self.resource.plural + (f"/{self.subresource}" if self.subresource else "")
        return Call(user.name, self.verb, self.resource.group, of, self.namespace, self.name)

    def forbidden(self, user: User) -> ApiError:
        call = self.call(user)
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return errors.forbidden(
            self.resource,
            self.name,
            f'User "{user.name}" cannot {call.verb} resource "{call.resource}" in API group'
            f' "{call.group}" {where}',
        )

    def selection(self) -> Selection:
        """Return which objects this is about, where it is about many."""
        fields = self.query.get("fieldSelector", "")
        if self.verb == "watch" and self.name:
            fields = f"metadata.name={self.name}"
        return selection(self.resource, self.namespace, self.query.get("labelSelector", ""), fields)

    def write(self, user_agent: str) -> Write:
        """Return how this request writes. Managers without a name go by their client's."""
        return Write(
            manager=self.query.get("fieldManager") or user_agent.partition("/")[0] or "unknown",
            subresource=self.subresource,
            validation=self.query.get("fieldValidation", "Warn"),
            dry_run=bool(self.query.get("dryRun")),
            force=self.asks("force"),
        )


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method == "GET":
        if query.get("watch", "") in ("true", "1"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    if (method in ("PUT", "PATCH") and not name) or method not in _VERBS:
        raise errors.method_not_allowed()
    return _VERBS[method]
