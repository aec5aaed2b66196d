"""The audit log has only changes that were made."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Delete audit rows of rejected changes, and the column that tells them apart.

    Some development builds dropped the column in version 0003.
    """
    columns = sa.inspect(op.get_bind()).get_columns("audit")
    if not any(column["name"] == "outcome" for column in columns):
        return
    op.execute("DELETE FROM audit WHERE outcome <> 'ok'")
    op.drop_column("audit", "outcome")
